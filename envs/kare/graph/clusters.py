"""Names that mean the same become one: agglomerative clustering of embeddings (Section 3.1.2, Eq. 2, KARE).

Average linkage over cosine distance, cut at the threshold with the best silhouette on a sample of the names. The
sample's dendrogram comes from scipy, which needs all its distances; all names are clustered by linkage.py, which is
exact too and needs memory for the names only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ghar.arrays import unit_rows
from ghar.envs.kare.graph.linkage import average_linkage, sums_of
from ghar.envs.kare.graph.triples import ConceptGraphs, Triple
from ghar.errors import BadInput
from ghar.ranking import DECIMALS
from ghar.storage import Strings, new_folder, read_array, read_meta, read_strings, write_arrays, write_meta

THRESHOLDS = tuple(round(0.01 * step, 2) for step in range(1, 31))  # cosine distances; the paper's choice was 0.14
SAMPLE = 2000  # names whose silhouette chooses the threshold


@dataclass(frozen=True, eq=False)
class Clusters:
    """names: unique, as given. representative: int32 [n], row of the name that stands for each name's cluster."""

    names: tuple[str, ...]
    representative: np.ndarray
    threshold: float

    @cached_property
    def _row_of(self) -> dict[str, int]:
        return {name: row for row, name in enumerate(self.names)}

    def map(self, name: str) -> str:
        """The representative of `name` (phi of Eq. 2, KARE). BadInput for a name that was not clustered."""
        row = self._row_of.get(name)
        if row is None:
            raise BadInput(f"{name!r} is not among the {len(self.names)} clustered names: cluster it with the others.")
        return self.names[self.representative[row]]

    def write(self, folder: Path) -> None:
        """Write a folder, whole or not at all."""
        with new_folder(folder) as temporary:
            write_arrays(temporary, {"names": Strings.of(self.names), "representative": self.representative})
            write_meta(temporary, {"threshold": self.threshold})

    @classmethod
    def read(cls, folder: Path) -> Clusters:
        """Read what `write` wrote. BadInput for a damaged folder."""
        names = tuple(read_strings(folder, "names")[:])
        return cls(names, np.array(read_array(folder, "representative")), read_meta(folder)["threshold"])


def cluster(
    names: Sequence[str],
    vectors: np.ndarray,
    *,
    seed: int,
    thresholds: Sequence[float] = THRESHOLDS,
    what: str = "names",
) -> Clusters:
    """Cluster `names` by `vectors` [n, d] at the one of `thresholds` with the best silhouette on a seeded sample.

    what: "entities" or "relations", for messages. Raises BadInput for an empty or repeated name and for a vector that
    is not finite.
    """
    unit = _unit(names, vectors, what)
    threshold = choose_threshold(unit, thresholds=thresholds, sample=SAMPLE, seed=seed)
    labels = average_linkage(unit, threshold, seed=seed, title=f"Cluster {what}")
    return Clusters(tuple(names), representatives(unit, labels), threshold)


def choose_threshold(unit: np.ndarray, *, thresholds: Sequence[float], sample: int, seed: int) -> float:
    """The threshold with the highest mean cosine silhouette on `sample` rows; the smallest one wins a tie.

    One dendrogram is cut at every threshold. A cut into single names or into one cluster has no silhouette and is not
    chosen; when every cut is such, the smallest threshold is. A sample that leaves many names out holds few of a name's
    synonyms and then prefers larger thresholds than all names would: a property of the paper's method.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from sklearn.metrics import silhouette_score

    if not thresholds or min(thresholds) <= 0 or max(thresholds) >= 1:
        raise BadInput(f"Thresholds {list(thresholds)} must be cosine distances between 0 and 1: give at least one.")
    ordered = sorted(thresholds)
    if len(unit) > sample:
        unit = unit[np.sort(np.random.default_rng(seed).choice(len(unit), sample, replace=False))]
    if len(unit) < 3:
        return ordered[0]
    distances = cosine_distances(unit)
    tree = linkage(squareform(distances, checks=False), "average")
    scores = []
    for threshold in ordered:
        labels = fcluster(tree, threshold, "distance")
        scored = 2 <= labels.max() < len(unit)
        scores.append(silhouette_score(distances, labels, metric="precomputed") if scored else -np.inf)
    return ordered[int(np.argmax(scores))]


def cosine_distances(unit: np.ndarray) -> np.ndarray:
    """float64 [n, n], symmetric, zero on the diagonal, never negative."""
    wide = unit.astype(np.float64)
    distances = np.maximum(1 - wide @ wide.T, 0)
    distances = (distances + distances.T) / 2
    np.fill_diagonal(distances, 0)
    return distances


def representatives(unit: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """int32 [n]: for every row the row of its cluster nearest to the mean of the cluster; the lowest among equals."""
    closeness = np.round(
        np.einsum("nd,nd->n", unit, sums_of(unit, labels)[labels]) / np.bincount(labels)[labels], DECIMALS
    )
    order = np.lexsort((np.arange(len(unit)), -closeness, labels))
    first = order[np.searchsorted(labels[order], np.arange(labels.max() + 1))]
    return first[labels].astype(np.int32)


def split_by_words(clusters: Clusters) -> Clusters:
    """The clusters with names of the same words alone, for vectors of hashed words.

    Two words that share a bucket have one vector: of the MIMIC-IV demo rifampicin and EDNRA were duloxetine.
    """
    names, row_of = clusters.names, dict[tuple[int, frozenset[str]], int]()
    for row in np.unique(clusters.representative).tolist():
        row_of[row, frozenset(names[row].split())] = row
    rows = [
        row_of.setdefault((representative, frozenset(name.split())), row)
        for row, (name, representative) in enumerate(zip(names, clusters.representative.tolist(), strict=True))
    ]
    return Clusters(names, np.array(rows, np.int32), clusters.threshold)


def join(clusters: Clusters, same: Mapping[str, str]) -> Clusters:
    """The clusters with names that are known to be one thing as one, and of different things apart.

    same: name -> name of its thing, of some names. The thing's own name is one of its names, where it is among them.
    """
    names, things = clusters.names, set(same.values())
    thing_of = [same.get(name, name if name in things else None) for name in names]
    rows_of: dict[str, list[int]] = {}
    for row, thing in enumerate(thing_of):
        if thing is not None:
            rows_of.setdefault(thing, []).append(row)
    stands = {thing: rows[_plainest([names[row] for row in rows], thing)] for thing, rows in rows_of.items()}
    rows = []
    for row, representative in enumerate(clusters.representative.tolist()):
        thing = thing_of[row] or thing_of[representative]
        rows.append(representative if thing is None else stands[thing])
    return Clusters(names, np.array(rows, np.int32), clusters.threshold)


def _plainest(names: Sequence[str], thing: str) -> int:
    """Which of a thing's names has, word for word, most in common with the others and with the thing: "albuterol" among
    its forms and brands, though the graph calls it salbutamol. Among several the shortest."""
    common = Counter(word for name in (*names, thing) for word in set(name.split()))

    def key(i: int) -> tuple[float, int, str]:
        words = set(names[i].split())
        return -sum(common[word] for word in words) / len(words), len(names[i]), names[i]

    return min(range(len(names)), key=key)


@dataclass(frozen=True)
class MergedGraph:
    """A graph of representatives. loops: triples dropped because merging made head and tail one. merged: triples that
    became equal to another one."""

    graphs: ConceptGraphs
    loops: int
    merged: int


def rewrite(graphs: ConceptGraphs, entities: Clusters, relations: Clusters) -> MergedGraph:
    """Replace every name of every triple by its representative (Eq. 2, KARE). Concepts keep their own names; a triple's
    sources are those of all triples that became it. BadInput for a name that was not clustered.
    """
    sources_of: dict[Triple, frozenset[str]] = {}
    new: list[Triple | None] = []
    for triple, sources in zip(graphs.triples, graphs.sources, strict=True):
        mapped = Triple(entities.map(triple.head), relations.map(triple.relation), entities.map(triple.tail))
        if mapped.head == mapped.tail and triple.head != triple.tail:
            new.append(None)
            continue
        new.append(mapped)
        sources_of[mapped] = sources_of.get(mapped, frozenset()) | sources
    ordered = sorted(sources_of)
    number = {triple: i for i, triple in enumerate(ordered)}
    ids = np.array([-1 if triple is None else number[triple] for triple in new], dtype=np.int32)
    of = {concept: np.unique(ids[own][ids[own] >= 0]) for concept, own in graphs.of.items()}
    loops = int((ids < 0).sum())
    result = ConceptGraphs(tuple(ordered), tuple(sources_of[triple] for triple in ordered), of)
    return MergedGraph(result, loops, len(ids) - loops - len(ordered))


def _unit(names: Sequence[str], vectors: np.ndarray, what: str) -> np.ndarray:
    """float32 [n, d], rows of length 1 (rows of zeros stay)."""
    if not len(names) or vectors.ndim != 2 or len(vectors) != len(names):
        raise BadInput(f"{len(names)} {what} and vectors {vectors.shape}: give names, and one row of numbers for each.")
    for row, name in enumerate(names):
        if not name.strip():
            raise BadInput(f"Row {row} of the {what} has an empty name: leave its triples out of the graph.")
    if len(set(names)) < len(names):
        raise BadInput(f"The {what} hold a name twice: give each name once.")
    return unit_rows(vectors, names)
