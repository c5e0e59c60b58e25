"""Which concept sets are kept: near duplicates of an earlier one say nothing new and cost answers (Appendix B.2, KARE).

The rule. Two sets differ by the concepts that are in one of them only (their multi-hot vectors differ in so many
places). The sets are taken in their order; a set is kept if it differs by at least `threshold` concepts from every set
kept before it. So the first of a group of near duplicates stays, and so does a set that is near only to a dropped one.
(The paper drops sets that differ "by fewer than" 5 and leaves open which of a pair goes.)

How it is fast, and still exact. Sets that differ by less than t concepts, both written rarest concept first, share one
of their first t concepts (prefix filter, Chaudhuri et al. 2006), unless they hold fewer than t in all. So each set
meets only the kept sets that share a rare concept. These are compared by size, then by a signature of `BITS` bits: each
concept flips one bit, so signatures differ in at most as many bits as the sets do in concepts; what is left is compared
concept by concept.
"""

from __future__ import annotations

from array import array

import numpy as np

from ghar.envs.kare.graph.concepts import ConceptSets

BITS = 512


def keep_different(sets: ConceptSets, threshold: int) -> np.ndarray:
    """i64, ascending: the numbers of the sets that the rule above keeps."""
    sizes = np.diff(sets.start)
    signatures = _signatures(sets)
    rarity = np.empty(len(sets.names), np.int64)
    rarity[np.argsort(np.bincount(sets.concept, minlength=len(sets.names)), kind="stable")] = np.arange(len(sets.names))
    # where[c]: kept sets with c among their first `threshold` concepts; the last list: kept sets of few concepts
    where = [array("q") for _ in range(len(sets.names) + 1)]
    kept = []
    for i in range(len(sets)):
        concepts = sets[i]
        first = concepts[np.argsort(rarity[concepts])[:threshold]].tolist()
        if len(concepts) < threshold:
            first.append(len(sets.names))
        met = [np.frombuffer(where[c], np.int64) for c in first if len(where[c])]
        if not (met and _has_near(sets, i, np.concatenate(met), sizes, signatures, threshold)):
            kept.append(i)
            met.clear()  # a list cannot grow while somebody looks at it
            for c in first:
                where[c].append(i)
    return np.array(kept, np.int64)


def _has_near(
    sets: ConceptSets, i: int, others: np.ndarray, sizes: np.ndarray, signatures: np.ndarray, threshold: int
) -> bool:
    """Whether set i differs by less than `threshold` concepts from one of `others`."""
    others = others[np.abs(sizes[others] - sizes[i]) < threshold]
    apart = np.bitwise_count(signatures[others] ^ signatures[i]).sum(axis=1, dtype=np.int64)
    concepts = set(sets[i].tolist())
    near = others[apart < threshold].tolist()
    return any(len(concepts.symmetric_difference(sets[other].tolist())) < threshold for other in near)


def _signatures(sets: ConceptSets) -> np.ndarray:
    """u64[S, BITS / 64]: bit c % BITS is flipped by every concept c of the set."""
    words = np.zeros((len(sets), BITS // 64), np.uint64)
    row = np.repeat(np.arange(len(sets)), np.diff(sets.start))
    bit = sets.concept % BITS
    np.bitwise_xor.at(words, (row, bit // 64), np.uint64(1) << (bit % 64).astype(np.uint64))
    return words
