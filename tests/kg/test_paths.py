from itertools import pairwise, permutations
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.kg import paths as module
from ghar.kg.paths import PathGraph, Paths, PathSearch, facts_along, make_path_graph, path_graph_of
from tests.kg.graphs import METFORMIN, SOD1, TINY, graph_of

NODES = 7
EDGES = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1), st.integers(0, 2)), max_size=30)


def graph(edges: list[tuple[int, int, int]], nodes: int = NODES) -> PathGraph:
    head, tail, relation = np.array(edges, np.int64).reshape(-1, 3).T
    return make_path_graph([f"n{i}" for i in range(nodes)], ["causes", "treats", "is"], head, tail, relation)


def search(g: PathGraph, a: int, b: int, length: int = 7, number: int = 40, nodes: int = 12_000) -> Paths:
    return PathSearch(g, max_length=length, max_paths=number, max_nodes=nodes).find(a, b)


def by_hand(edges: list[tuple[int, int, int]], a: int, b: int, length: int) -> list[tuple[int, ...]]:
    """Every simple path, by trying every order of the other nodes."""
    joined = {(x, y) for x, y, _ in edges} | {(y, x) for x, y, _ in edges}
    others = [node for node in range(NODES) if node not in (a, b)]
    paths = [(a, *middle, b) for n in range(length) for middle in permutations(others, n)]
    return sorted((p for p in paths if all(pair in joined for pair in pairwise(p))), key=lambda p: (len(p), p))


@settings(max_examples=150)
@given(EDGES, st.integers(1, 6), st.sampled_from([1, 3, 1000]), st.sampled_from([1, 2048]))
def test_all_simple_paths_shortest_first(edges: list, length: int, number: int, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "SCAN", chunk)  # small parts give the same paths
        patch.setattr(module, "ROWS", chunk)
        found = search(graph(edges), 0, 1, length, number, 10**9)
    assert list(found.paths) == by_hand(edges, 0, 1, length)[:number]
    assert found.complete


@settings(max_examples=100)
@given(EDGES, st.integers(2, 40))
def test_a_limit_on_nodes_takes_from_the_end(edges: list, nodes: int) -> None:
    found, whole = search(graph(edges), 0, 1, 6, 1000, nodes), by_hand(edges, 0, 1, 6)
    longest = max(map(len, found.paths), default=0)
    assert list(found.paths) == whole[: len(found.paths)]
    assert found.complete or all(len(path) > longest for path in whole[len(found.paths) :])
    assert not found.complete or len(found.paths) == len(whole)


@pytest.mark.parametrize("seed", range(3))
def test_as_networkx_finds_them_in_a_larger_graph(seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = (200 * rng.random((600, 2)) ** (1 + seed)).astype(int)  # more and more hubs
    edges = [(int(a), int(b), 0) for a, b in ends]
    own, theirs = graph(edges, 200), nx.Graph([(a, b) for a, b, _ in edges if a != b])
    theirs.add_nodes_from(range(200))
    for a, b in rng.integers(0, 200, (15, 2)).tolist():
        found = search(own, a, b, 5, 40, 10**9).paths
        if a == b or not nx.has_path(theirs, a, b):
            assert found == ()
            continue
        lengths = []
        for path in nx.shortest_simple_paths(theirs, a, b):
            if len(path) > 6 or len(lengths) == 40:
                break
            lengths.append(len(path))
        assert list(map(len, found)) == lengths
        assert len(set(found)) == len(found)
        assert all(nx.is_simple_path(theirs, path) for path in found)


@settings(max_examples=50)
@given(EDGES)
def test_the_facts_along_paths_are_those_between_their_nodes(edges: list) -> None:
    g = graph(edges)
    paths = search(g, 0, 1).paths
    steps = {frozenset(pair) for path in paths for pair in pairwise(path)}
    wanted = sorted((a, r, b) for a, b, r in edges if frozenset((a, b)) in steps and a != b)
    facts = facts_along(g, paths).tolist()
    assert sorted((g.head[i], g.relation[i], g.tail[i]) for i in facts) == wanted
    assert facts == sorted(set(facts))


def test_several_relations_are_several_facts_in_their_direction(tmp_path: Path) -> None:
    typed = graph_of(tmp_path, TINY)
    g = path_graph_of(typed)
    node = {name: i for i, name in enumerate(typed.names)}
    drug, gene = node[METFORMIN[2]], node[SOD1[2]]
    found = search(g, gene, drug, 1).paths
    assert found == ((gene, drug),)
    said = [(g.names[g.head[i]], g.relations[g.relation[i]], g.names[g.tail[i]]) for i in facts_along(g, found)]
    assert sorted(said) == [("Metformin", "enzyme", "SOD1"), ("Metformin", "target", "SOD1")]


def test_nothing_to_find() -> None:
    g = graph([(0, 2, 0), (1, 3, 0)])
    assert search(g, 0, 1) == Paths((), True)
    assert search(g, 0, 0) == Paths((), True)
    assert search(graph([]), 0, 1) == Paths((), True)
