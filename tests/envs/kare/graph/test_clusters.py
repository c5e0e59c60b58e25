"""Clustering of names against direct evaluation: all distances, one merge after another."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist
from sklearn.metrics import adjusted_rand_score, silhouette_score

from ghar.envs.kare.graph.clusters import (
    Clusters,
    choose_threshold,
    cluster,
    join,
    representatives,
    rewrite,
    split_by_words,
)
from ghar.envs.kare.graph.linkage import average_linkage
from ghar.envs.kare.graph.triples import ConceptGraphs, Triple, union
from ghar.errors import BadInput
from ghar.retrieval.encoders import HashingEncoder

SEEDS = st.integers(0, 2**32 - 1)


def some_vectors(seed: int, n: int, groups: int, spread: float, dimension: int = 8) -> np.ndarray:
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((groups, dimension))[rng.integers(0, groups, n)]
    vectors = vectors + spread * rng.standard_normal((n, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def merged_one_by_one(unit: np.ndarray, threshold: float) -> list[set[int]]:
    """Average linkage as it is defined: unite the closest pair of clusters, until it is beyond the threshold."""
    distances = 1 - unit.astype(np.float64) @ unit.T.astype(np.float64)
    parts = [{i} for i in range(len(unit))]

    def between(a: set[int], b: set[int]) -> float:
        return float(distances[np.ix_(sorted(a), sorted(b))].mean())

    while len(parts) > 1:
        pairs = [(between(a, b), i, j) for i, a in enumerate(parts) for j, b in enumerate(parts) if i < j]
        distance, i, j = min(pairs)
        if distance > threshold:
            break
        parts[i] |= parts.pop(j)
    return parts


def as_sets(labels: np.ndarray) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels == label).tolist()) for label in np.unique(labels)}


@settings(max_examples=30)
@given(seed=SEEDS, n=st.integers(1, 24), groups=st.integers(1, 8), threshold=st.floats(0.01, 0.9))
def test_average_linkage_is_the_definition(seed: int, n: int, groups: int, threshold: float):
    unit = some_vectors(seed, n, groups, 0.4)
    labels = average_linkage(unit, threshold, seed=seed, title="test")
    assert as_sets(labels) == {frozenset(part) for part in merged_one_by_one(unit, threshold)}
    assert labels[0] == 0 and (np.diff(np.unique(labels, return_index=True)[1]) > 0).all()


@pytest.mark.parametrize("threshold", [0.05, 0.14, 0.3, 0.6])
def test_average_linkage_is_scipys(threshold: float):
    unit = some_vectors(3, 1500, 200, 0.25, dimension=32)
    labels = average_linkage(unit, threshold, seed=0, title="test")
    exact = fcluster(linkage(pdist(unit.astype(np.float64), "cosine"), "average"), threshold, "distance")
    assert adjusted_rand_score(exact, labels) == 1


def test_equal_distances_all_around_do_not_make_it_slow_or_endless():
    unit = np.sqrt(np.float32(0.5)) * np.eye(500, 501, dtype=np.float32)
    unit[:, -1] = np.sqrt(0.5)
    assert average_linkage(unit, 0.51, seed=0, title="test").max() == 0
    assert average_linkage(unit, 0.49, seed=0, title="test").max() == 499


def test_rows_that_are_equal_are_one_cluster_and_rows_of_zeros_stay_alone():
    unit = np.repeat(np.eye(3, dtype=np.float32), 400, axis=0)
    unit = np.concatenate([unit, np.zeros((2, 3), np.float32)])
    labels = average_linkage(unit, 0.01, seed=0, title="test")
    assert labels.tolist() == [0] * 400 + [1] * 400 + [2] * 400 + [3, 4]


@pytest.mark.slow
@settings(max_examples=12)
@given(seed=SEEDS, n=st.integers(3, 25), groups=st.integers(1, 12))
def test_threshold_is_the_smallest_of_the_best_silhouettes(seed: int, n: int, groups: int):
    unit = some_vectors(seed, n, groups, 0.3)
    thresholds = [0.3, 0.05, 0.1, 0.2, 0.7]
    best, score = 0.05, -np.inf
    for threshold in sorted(thresholds):
        parts = merged_one_by_one(unit, threshold)
        if not 2 <= len(parts) < n:
            continue
        labels = np.zeros(n, dtype=int)
        for label, part in enumerate(parts):
            labels[sorted(part)] = label
        value = silhouette_score(unit.astype(np.float64), labels, metric="cosine")
        if value > score + 1e-9:
            best, score = threshold, value
    assert choose_threshold(unit, thresholds=thresholds, sample=1000, seed=0) == best


def test_threshold_reads_a_seeded_sample():
    unit = some_vectors(1, 300, 40, 0.2)
    rows = np.sort(np.random.default_rng(5).choice(300, 50, replace=False))
    options = {"thresholds": (0.05, 0.1, 0.2, 0.4), "sample": 50}
    assert choose_threshold(unit, seed=5, **options) == choose_threshold(unit[rows], seed=0, **options)


@settings(max_examples=30)
@given(seed=SEEDS, n=st.integers(1, 30), groups=st.integers(1, 5))
def test_representative_is_nearest_to_the_mean(seed: int, n: int, groups: int):
    unit = some_vectors(seed, n, groups, 0.5)
    labels = np.unique(np.random.default_rng(seed).integers(0, groups, n), return_inverse=True)[1]
    found = representatives(unit, labels)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        centre = unit[rows].astype(np.float64).mean(axis=0)
        distances = np.linalg.norm(unit[rows] - centre, axis=1)
        assert len(set(found[rows].tolist())) == 1 and found[rows[0]] in rows
        assert np.linalg.norm(unit[found[rows[0]]] - centre) <= distances.min() + 1e-4


def test_the_lowest_of_two_equally_near_names_represents():
    unit = np.array([[0, 1], [0.6, 0.8], [0.6, -0.8], [1, 0], [0.6, 0.8]], dtype=np.float32)
    assert representatives(unit, np.array([0, 1, 1, 0, 1])).tolist() == [0, 1, 1, 0, 1]
    assert representatives(unit[[1, 2]], np.array([0, 0])).tolist() == [0, 0]


def graphs_of(triples: list[tuple[str, str, str]]) -> ConceptGraphs:
    halves = triples[::2], triples[1::2]
    return union({"graph": {"a": map(Triple._make, halves[0])}, "corpus": {"b": map(Triple._make, halves[1]), "c": []}})


NAMES = tuple("abcdef")
TRIPLES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(["p", "q", "r"]), st.sampled_from(NAMES)))


@settings(max_examples=60)
@given(triples=TRIPLES, groups=st.lists(st.integers(0, 3), min_size=6, max_size=6), same=st.booleans())
def test_rewrite_maps_every_triple(triples: list[tuple[str, str, str]], groups: list[int], same: bool):
    graphs = graphs_of(triples)
    entities = Clusters(NAMES, np.array([groups.index(group) for group in groups], dtype=np.int32), 0.1)
    relations = Clusters(("p", "q", "r"), np.array([0, 0 if same else 1, 2], dtype=np.int32), 0.1)
    done = rewrite(graphs, entities, relations)
    told: dict[Triple, set[str]] = {}
    loops = 0
    for triple, sources in zip(graphs.triples, graphs.sources, strict=True):
        new = Triple(entities.map(triple.head), relations.map(triple.relation), entities.map(triple.tail))
        if new.head == new.tail and triple.head != triple.tail:
            loops += 1
        else:
            told.setdefault(new, set()).update(sources)
    assert done.graphs.triples == tuple(sorted(told))
    assert done.graphs.sources == tuple(frozenset(told[triple]) for triple in sorted(told))
    assert (done.loops, done.merged) == (loops, len(graphs.triples) - loops - len(told))
    assert list(done.graphs.of) == list(graphs.of)
    for concept, ids in graphs.of.items():
        mapped = [
            Triple(entities.map(head), relations.map(relation), entities.map(tail))
            for head, relation, tail in (graphs.triples[i] for i in ids)
            if entities.map(head) != entities.map(tail) or head == tail
        ]
        own = done.graphs.of[concept]
        assert own.tolist() == sorted(own.tolist())
        assert [done.graphs.triples[i] for i in own] == sorted(set(mapped))


def test_names_cluster_and_come_back_from_disk(tmp_path: Path):
    unit = some_vectors(2, 60, 10, 0.05)
    names = [f"name {i}" for i in range(60)]
    found = cluster(names, unit, seed=0)
    again = cluster(names, unit, seed=0)
    assert np.array_equal(found.representative, again.representative) and found.threshold == again.threshold
    assert 1 < len(set(found.representative.tolist())) < 60
    assert all(found.map(found.map(name)) == found.map(name) for name in names)
    found.write(tmp_path / "clusters")
    back = Clusters.read(tmp_path / "clusters")
    assert back.names == found.names and back.threshold == found.threshold
    assert np.array_equal(back.representative, found.representative)


def test_bad_names_and_vectors_are_named():
    unit = np.eye(3)
    with pytest.raises(BadInput, match="Row 1 of the relations has an empty name"):
        cluster(["a", " ", "c"], unit, seed=0, what="relations")
    with pytest.raises(BadInput, match=r"row 1 \('b'\), one of 1 such rows, holds NaN"):
        cluster(["a", "b", "c"], np.diag([1, np.nan, 1]), seed=0, what="entities")
    with pytest.raises(BadInput, match="twice"):
        cluster(["a", "b", "a"], unit, seed=0)
    with pytest.raises(BadInput, match="one row of numbers"):
        cluster(["a", "b"], unit, seed=0)
    with pytest.raises(BadInput, match="between 0 and 1"):
        cluster(["a", "b", "c"], unit, seed=0, thresholds=(0.0, 0.1))
    with pytest.raises(BadInput, match="'z' is not among the 3 clustered names"):
        cluster(["a", "b", "c"], unit, seed=0).map("z")


def test_names_of_one_drug_are_one_and_of_two_drugs_two() -> None:
    """Orders of eICU: what is known of a name decides, and a name of which nothing is known stays with its likes."""
    names = ("albuterol", "albuterol hfa", "anemia", "atrovent", "duoneb", "ipratropium bromide", "ventolin",
             "ventolin x")  # fmt: skip
    same = {"albuterol": "salbutamol", "albuterol hfa": "salbutamol", "ventolin": "salbutamol", "asa": "aspirin"}
    same |= {"atrovent": "ipratropium", "ipratropium bromide": "ipratropium"}
    near = Clusters(names, np.array([0, 1, 2, 3, 3, 5, 6, 6], np.int32), 0.05)
    joined = join(near, same)
    ipratropium = "ipratropium bromide"
    found = "albuterol", "albuterol", "anemia", ipratropium, ipratropium, ipratropium, "albuterol", "albuterol"
    assert tuple(joined.map(name) for name in names) == found
    mixed = Clusters(names, np.array([1, 1, 2, 1, 4, 1, 6, 7], np.int32), 0.05)
    joined = join(mixed, same)
    assert joined.map("atrovent") == joined.map(ipratropium) == ipratropium
    assert joined.map("albuterol") == joined.map("ventolin") == "albuterol"
    assert (joined.map("duoneb"), joined.map("ventolin x")) == ("duoneb", "ventolin x")
    assert join(near, {}).representative.tolist() == near.representative.tolist()


def test_hashed_names_of_other_words_are_not_one() -> None:
    """Words share buckets: in the communities of the MIMIC-IV demo facts of rifampicin stood as duloxetine's."""
    encoder = HashingEncoder(2048)
    names = ("baclofen", "duloxetine", "ednra", "left heart failure", "heart failure left heart failure", "rifampicin")
    hashed = cluster(names, encoder.passages(names), seed=0, thresholds=(0.01, 0.05))
    assert hashed.map("rifampicin") == hashed.map("ednra") == "duloxetine"
    clusters = split_by_words(hashed)
    assert [clusters.map(name) for name in names if " " not in name] == [name for name in names if " " not in name]
    together = Clusters(names, np.array([0, 1, 1, 3, 3, 5], np.int32), 0.05)
    assert split_by_words(together).map(names[4]) == names[3] and split_by_words(together).map("ednra") == "ednra"
