"""A generated graph of PrimeKG's size, for measurements: its node and edge counts, invented names.

Counts per type and relation are PrimeKG's (Chandak et al., Scientific Data 2023): 129,375 nodes of 10 types, 8,100,498
directed edges of 30 relations. Both directions of an edge are kept as two edges here, as PrimeKG's file lists them.
(`read_primekg` keeps one of the two, so a real PrimeKG is half as large once it has been read.)
"""

from __future__ import annotations

import numpy as np
import polars as pl

from ghar.kg.graph import KnowledgeGraph, build_graph
from ghar.progress import track

# Type: nodes, words a name has at most.
NODES = {
    "anatomy": (14_035, 4),
    "biological_process": (28_642, 6),
    "cellular_component": (4_176, 4),
    "disease": (17_080, 5),
    "drug": (7_957, 2),
    "effect/phenotype": (15_311, 4),
    "exposure": (818, 3),
    "gene/protein": (27_671, 1),
    "molecular_function": (11_169, 5),
    "pathway": (2_516, 6),
}
# Relation, as it is read aloud, its two types, directed edges.
EDGES = (
    ("anatomy_protein_present", "expression present", "anatomy", "gene/protein", 3_036_406),
    ("drug_drug", "synergistic interaction", "drug", "drug", 2_672_628),
    ("protein_protein", "ppi", "gene/protein", "gene/protein", 642_150),
    ("disease_phenotype_positive", "phenotype present", "disease", "effect/phenotype", 300_634),
    ("bioprocess_protein", "interacts with", "biological_process", "gene/protein", 289_610),
    ("cellcomp_protein", "interacts with", "cellular_component", "gene/protein", 166_804),
    ("disease_protein", "associated with", "disease", "gene/protein", 160_822),
    ("molfunc_protein", "interacts with", "gene/protein", "molecular_function", 139_060),
    ("drug_effect", "side effect", "drug", "effect/phenotype", 129_568),
    ("bioprocess_bioprocess", "parent-child", "biological_process", "biological_process", 105_772),
    ("pathway_protein", "interacts with", "gene/protein", "pathway", 85_292),
    ("disease_disease", "parent-child", "disease", "disease", 64_388),
    ("contraindication", "contraindication", "disease", "drug", 61_350),
    ("drug_protein", "target", "drug", "gene/protein", 51_306),
    ("anatomy_protein_absent", "expression absent", "anatomy", "gene/protein", 39_774),
    ("phenotype_phenotype", "parent-child", "effect/phenotype", "effect/phenotype", 37_472),
    ("anatomy_anatomy", "parent-child", "anatomy", "anatomy", 28_064),
    ("molfunc_molfunc", "parent-child", "molecular_function", "molecular_function", 27_148),
    ("indication", "indication", "disease", "drug", 18_776),
    ("cellcomp_cellcomp", "parent-child", "cellular_component", "cellular_component", 9_690),
    ("phenotype_protein", "associated with", "effect/phenotype", "gene/protein", 6_660),
    ("off-label use", "off-label use", "disease", "drug", 5_136),
    ("pathway_pathway", "parent-child", "pathway", "pathway", 5_070),
    ("exposure_disease", "linked to", "disease", "exposure", 4_608),
    ("exposure_exposure", "parent-child", "exposure", "exposure", 4_140),
    ("exposure_bioprocess", "interacts with", "biological_process", "exposure", 3_250),
    ("exposure_protein", "interacts with", "exposure", "gene/protein", 2_424),
    ("disease_phenotype_negative", "phenotype absent", "disease", "effect/phenotype", 2_386),
    ("exposure_molfunc", "interacts with", "exposure", "molecular_function", 90),
    ("exposure_cellcomp", "interacts with", "cellular_component", "exposure", 20),
)
WORDS = 6_000  # vocabulary of the names; real ones repeat their words as often
SYLLABLES = "ba ce di fo gly hy ki lo mer neu oste per ri sta thy uro ven xan zy car dia pla ster tol mab phor".split()
SKEW = 3.0  # how unequal nodes' degrees are: a node's rank is drawn as count * uniform ** SKEW


def primekg_sized(seed: int, share: float = 1.0) -> KnowledgeGraph:
    """The graph; `share` of its nodes and edges for a smaller one of the same shape. The same seed, the same graph."""
    rng = np.random.default_rng(seed)
    sizes = {kind: max(3, round(count * share)) for kind, (count, _) in NODES.items()}
    starts = dict(zip(sizes, np.cumsum([0, *sizes.values()]).tolist(), strict=False))
    total = sum(sizes.values())
    nodes = pl.DataFrame(
        {
            "index": np.arange(total),
            "id": [str(i) for i in range(total)],
            "type": [kind for kind, count in sizes.items() for _ in range(count)],
            "name": _names(rng, sizes),
            "source": ["generated"] * total,
        }
    )
    tables = []
    for relation, display, head, tail, count in track(EDGES, "Generate the relations"):
        pairs = _pairs(rng, sizes[head], sizes[tail], head == tail, max(1, round(count * share / 2)))
        ends = pairs + np.array([starts[head], starts[tail]])
        both = np.concatenate([ends, ends[:, ::-1]])
        table = pl.DataFrame({"head": both[:, 0], "tail": both[:, 1]})
        tables.append(table.with_columns(relation=pl.lit(relation), display_relation=pl.lit(display)))
    return build_graph(nodes, pl.concat(tables))


def _names(rng: np.random.Generator, sizes: dict[str, int]) -> list[str]:
    """A name for every node, distinct: words with frequencies as in natural language (Zipf), genes as codes."""
    syllables = rng.choice(SYLLABLES, (2 * WORDS, 4))
    vocabulary = list(dict.fromkeys("".join(row[: 2 + i % 3]) for i, row in enumerate(syllables)))[:WORDS]
    weights = 1 / np.arange(10, len(vocabulary) + 10)
    weights /= weights.sum()
    seen: dict[str, None] = {}
    for kind, count in sizes.items():
        wanted = len(seen) + count
        while len(seen) < wanted:
            if kind == "gene/protein":
                letters = "".join(rng.choice(list("ABCDEFGHKLMNPRSTZ"), 3))
                name = f"{letters}{rng.integers(1, 100)}"
            else:
                name = " ".join(rng.choice(vocabulary, rng.integers(1, NODES[kind][1] + 1), p=weights))
            seen.setdefault(name)
    return list(seen)


def _pairs(rng: np.random.Generator, heads: int, tails: int, same: bool, count: int) -> np.ndarray:
    """i64[n, 2]: `count` distinct pairs (fewer when there are no more), of one type without order and loops."""
    count = min(count, heads * (heads - 1) // 2 if same else heads * tails)
    pairs = np.empty(0, dtype=np.int64)
    while len(pairs) < count:
        ends = [np.floor(n * rng.random(count + 16) ** SKEW).astype(np.int64) for n in (heads, tails)]
        if len(pairs) > count * 0.6:  # the frequent pairs are used up: the rest come from everywhere
            ends = [rng.integers(0, n, count + 16) for n in (heads, tails)]
        a, b = (np.minimum(*ends), np.maximum(*ends)) if same else ends
        keys = (a * tails + b)[a != b] if same else a * tails + b
        pairs = np.unique(np.concatenate([pairs, keys]))
    pairs = rng.permutation(pairs)[:count]
    return np.stack([pairs // tails, pairs % tails], axis=1)
