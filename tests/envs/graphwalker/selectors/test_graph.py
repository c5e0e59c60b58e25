"""Neighbours, cohorts and prototypes against slow direct evaluations, and a graph that grows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from ghar.arrays import unit_rows
from ghar.envs.graphwalker.selectors import neighbours
from ghar.envs.graphwalker.selectors.cohorts import find_cohorts
from ghar.envs.graphwalker.selectors.graph import PatientGraph, add, build_graph, symmetrised
from ghar.envs.graphwalker.selectors.neighbours import k_nearest
from ghar.errors import BadInput
from ghar.ranking import DECIMALS


@st.composite
def tables(draw: st.DrawFn) -> np.ndarray:
    """Coarse vectors, so that duplicates, ties and zeros are common."""
    n, d, top = draw(st.integers(3, 14)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    numbers = draw(st.lists(st.integers(-top, top), min_size=n * d, max_size=n * d))
    return np.array(numbers, np.float32).reshape(n, d)


def names(n: int) -> list[str]:
    return [f"p{i}" for i in range(n)]


def planted(seed: int = 0, sizes: tuple[int, ...] = (30, 25, 40), d: int = 12) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    of = np.repeat(np.arange(len(sizes)), sizes)
    return (2.5 * rng.standard_normal((len(sizes), d))[of] + rng.standard_normal((len(of), d))).astype(np.float32), of


def slow_nearest(vectors: np.ndarray, k: int) -> list[list[int]]:
    """By the definition: cosine of every pair, higher first, then the lower row."""
    result = []
    for i, a in enumerate(vectors.astype(float)):
        lengths = [np.linalg.norm(a) * np.linalg.norm(b) for b in vectors.astype(float)]
        cosines = [float(a @ b) / z if z else 0.0 for b, z in zip(vectors.astype(float), lengths, strict=True)]
        others = sorted((-round(c, DECIMALS) + 0.0, j) for j, c in enumerate(cosines) if j != i)
        result.append([j for _, j in others[:k]])
    return result


@settings(max_examples=40)
@given(tables(), st.integers(1, 4))
def test_neighbours_are_the_nearest_and_ties_go_to_the_lower_row(vectors: np.ndarray, k: int) -> None:
    k = min(k, len(vectors) - 1)
    graph = build_graph(vectors, names(len(vectors)), k=k)
    expected = slow_nearest(vectors, k)
    assert graph.near.tolist() == expected
    for i in range(len(vectors)):
        edges = {j for j in range(len(vectors)) if j in expected[i] or i in expected[j]}
        assert graph.neighbours_of(i).tolist() == sorted(edges)


def test_many_equal_vectors_are_beyond_what_is_proposed_and_still_in_order() -> None:
    vectors = np.ones((80, 3), np.float32)
    near, cosines = k_nearest(unit_rows(vectors), unit_rows(vectors), 4, first=0)
    assert near[0].tolist() == [1, 2, 3, 4] and near[70].tolist() == [0, 1, 2, 3]
    assert np.allclose(cosines, 1)


def test_a_list_does_not_depend_on_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = unit_rows(planted()[0])
    near, cosines = k_nearest(unit, unit, 5, first=0)
    monkeypatch.setattr(neighbours, "BLOCK", 7)
    for i in (0, 3, 90):
        alone, value = k_nearest(unit[i : i + 1], unit, 5, first=i)
        assert alone[0].tolist() == near[i].tolist() and value[0].tolist() == cosines[i].tolist()
    assert np.array_equal(k_nearest(unit, unit, 5, first=0)[0], near)


@settings(max_examples=40)
@given(tables(), st.data())
def test_a_grown_graph_is_the_one_built_anew(vectors: np.ndarray, data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(vectors) - 2))
    old = data.draw(st.integers(k + 1, len(vectors)))
    whole = build_graph(vectors, names(len(vectors)), k=k)
    grown = add(build_graph(vectors[:old], names(old), k=k), vectors[old:], names(len(vectors))[old:])
    assert set(vars(grown)) >= {"near", "closeness", "starts", "neighbours", "cohorts", "prototypes"}
    for name, value in vars(whole).items():
        assert np.array_equal(getattr(grown, name), value), name
    assert_prototypes(grown)


def assert_prototypes(graph: PatientGraph) -> None:
    """Eq. 4: means of the vectors as they are; labels in the order of first patients."""
    assert sorted(set(graph.cohorts.tolist())) == list(range(len(graph.prototypes)))
    firsts = [int(np.argmax(graph.cohorts == c)) for c in range(len(graph.prototypes))]
    assert firsts == sorted(firsts)
    for c, prototype in enumerate(graph.prototypes):
        assert np.allclose(prototype, graph.vectors[graph.members_of(c)].mean(0), atol=1e-4)


@pytest.mark.parametrize("method", ["leiden", "louvain", "released"])
def test_planted_cohorts_are_found(method: str) -> None:
    vectors, clusters = planted()
    graph = build_graph(vectors, names(95), method=method)  # pyright: ignore[reportArgumentType]
    assert_prototypes(graph)
    found = adjusted_rand_score(clusters, graph.cohorts)
    assert found == 1
    again = build_graph(vectors, names(95), method=method)  # pyright: ignore[reportArgumentType]
    assert np.array_equal(again.cohorts, graph.cohorts)


@pytest.mark.parametrize("method", ["leiden", "louvain", "released"])
def test_another_seed_finds_other_cohorts_only_where_nothing_is_planted(method: str) -> None:
    """As the paper repeats its runs with other seeds (Appendix G, GraphWalker): a run's seed is that of its cohorts."""
    vague = np.random.default_rng(5).standard_normal((200, 8)).astype(np.float32)

    def cohorts(vectors: np.ndarray, seed: int) -> np.ndarray:
        return build_graph(vectors, names(len(vectors)), method=method, seed=seed).cohorts  # pyright: ignore[reportArgumentType]

    seeds = [cohorts(vague, seed) for seed in range(6)]
    assert any(not np.array_equal(seeds[0], other) for other in seeds[1:])
    assert all(np.array_equal(cohorts(vague, seed), seeds[seed]) for seed in (0, 5))
    vectors, clusters = planted()
    assert all(adjusted_rand_score(clusters, cohorts(vectors, seed)) == 1 for seed in range(6))


def test_new_patients_who_are_like_nobody_get_a_cohort_of_their_own() -> None:
    vectors, _ = planted()
    others = -vectors.sum(0) + np.random.default_rng(0).standard_normal((12, 12)).astype(np.float32)
    first = build_graph(vectors, names(95))
    grown = add(first, others, [f"new{i}" for i in range(12)])
    assert np.array_equal(grown.cohorts[:95], first.cohorts)
    assert set(grown.cohorts[95:]) == {first.cohorts.max() + 1}


def gain(adjacency: np.ndarray, labels: np.ndarray, expected: np.ndarray) -> float:
    """Sum of A_ij - expected_ij over the ordered pairs of one cohort."""
    same = labels[:, None] == labels[None, :]
    np.fill_diagonal(same, False)
    return float(((adjacency - expected) * same).sum())


@pytest.mark.parametrize("method", ["leiden", "louvain", "released"])
def test_neither_moving_a_patient_nor_joining_two_cohorts_would_be_better(method: str) -> None:
    """What each method maximises, evaluated as written in envs/graphwalker/selectors/cohorts.py; Louvain promises no
    more than that no two cohorts should be one (Traag et al. 2019)."""
    vectors = np.random.default_rng(3).standard_normal((40, 6)).astype(np.float32)
    unit = unit_rows(vectors)
    starts, columns, cosines = symmetrised(*k_nearest(unit, unit, 3, first=0))
    adjacency = np.zeros((40, 40))
    rows = np.repeat(np.arange(40), np.diff(starts))
    adjacency[rows, columns] = np.maximum(cosines, 1e-6) if method == "released" else 1
    degree = adjacency.sum(1)
    expected = 0.9 * np.outer(degree, degree) / degree.sum()  # Eq. 3 at resolution 0.9
    if method == "released":
        expected = np.full((40, 40), 0.9 * degree.sum() / (40 * 39))
    labels = find_cohorts(starts, columns, cosines, 0.9, method, 0)  # pyright: ignore[reportArgumentType]
    best = gain(adjacency, labels, expected)
    assert len(set(labels.tolist())) > 2
    others = [np.where(labels == a, b, labels) for b in range(labels.max()) for a in range(b + 1, labels.max() + 1)]
    if method != "louvain":
        others += [np.where(np.arange(40) == i, c, labels) for i in range(40) for c in range(labels.max() + 2)]
        assert_connected(labels, starts, columns)
    assert max(gain(adjacency, other, expected) for other in others) <= best + 1e-9


def assert_connected(labels: np.ndarray, starts: np.ndarray, columns: np.ndarray) -> None:
    """Leiden's promise (Traag et al. 2019)."""
    for c in range(labels.max() + 1):
        reached, todo = set(), [int(np.argmax(labels == c))]
        while todo:
            i = todo.pop()
            reached.add(i)
            todo += [j for j in columns[starts[i] : starts[i + 1]] if labels[j] == c and j not in reached]
        assert reached == set(np.flatnonzero(labels == c).tolist())


def test_a_cohort_of_one_has_its_patient_as_prototype() -> None:
    vectors, _ = planted()
    graph = build_graph(vectors, names(95), resolution=500.0)
    assert len(graph.prototypes) == 95 and np.array_equal(graph.prototypes, vectors)


def test_saved_and_reloaded(tmp_path: Path) -> None:
    graph = build_graph(planted()[0], [f"patient é{i}" for i in range(95)], method="louvain", seed=4)
    graph.save(tmp_path / "cache/graph.npz")
    again = PatientGraph.load(tmp_path / "cache/graph.npz")
    for name, value in vars(graph).items():
        assert np.array_equal(getattr(again, name), value), name
    assert again.row_of["patient é7"] == 7 and [f.name for f in (tmp_path / "cache").iterdir()] == ["graph.npz"]
    path = tmp_path / "cache/graph.npz"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(BadInput, match="delete it"):
        PatientGraph.load(path)


@pytest.mark.parametrize("change, said", [
    (lambda v, i: (v[:8], i[:8]), "lower k to at most 7"),
    (lambda v, i: (v, [*i[:-1], i[0]]), "p0 is in the graph twice"),
    (lambda v, i: (v[:-1], i), "one vector per patient"),
    (lambda v, i: (np.where(np.arange(95)[:, None] == 17, np.nan, v), i), "row 17"),
    (lambda v, i: (np.where(np.arange(95)[:, None] == 4, np.inf, v), i), "row 4"),
    (lambda v, i: (v[:, 0], i), "must be a table"),
])  # fmt: skip
def test_bad_input_is_a_sentence(change, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        build_graph(*change(planted()[0], names(95)))


def test_growing_refuses_what_does_not_fit() -> None:
    graph = build_graph(planted()[0], names(95))
    assert add(graph, np.empty((0, 12)), []) is graph
    with pytest.raises(BadInput, match="use its encoder"):
        add(graph, np.ones((1, 3)), ["new"])
    with pytest.raises(BadInput, match="p3 is in the graph twice"):
        add(graph, np.ones((1, 12)), ["p3"])
    with pytest.raises(BadInput, match="row 95"):
        add(graph, np.full((1, 12), np.nan), ["new"])
