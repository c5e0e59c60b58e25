"""Communities against direct evaluation on small random graphs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.kare.graph import communities
from ghar.envs.kare.graph.communities import Communities, detect
from ghar.envs.kare.graph.triples import ConceptGraphs, Triple, union
from ghar.errors import BadInput


def graph(seed: int, entities: int, triples: int) -> ConceptGraphs:
    """A random graph in which neighbours on a ring of groups are joined most, sometimes by several relations."""
    rng = np.random.default_rng(seed)
    heads = rng.integers(0, entities, triples)
    tails = np.where(rng.random(triples) < 0.8, heads // 6 * 6 + rng.integers(0, 6, triples), rng.integers(0, entities))
    words = rng.choice(["treats", "causes", "is a"], triples)
    rows = [Triple(f"e{h}", str(w), f"e{t % entities}") for h, w, t in zip(heads, words, tails, strict=True)]
    return union({"graph": {"concept": rows}})


def components(pairs: list[tuple[int, int]], nodes: set[int]) -> int:
    """How many connected parts a community has."""
    left, parts = set(nodes), 0
    while left:
        parts += 1
        reach = [left.pop()]
        while reach:
            here = reach.pop()
            for a, b in pairs:
                other = b if a == here else a if b == here else None
                if other in left:
                    left.remove(other)
                    reach.append(other)
    return parts


@settings(max_examples=25)
@given(seed=st.integers(0, 2**32 - 1), entities=st.integers(8, 60), triples=st.integers(20, 150))
def test_communities_are_unique_connected_and_hold_exactly_the_triples_among_their_nodes(
    seed: int, entities: int, triples: int
):
    found = detect(graph(seed, entities, triples), runs=3, max_cluster=4, seed=seed)
    rows = found.triples.tolist()
    sets = []
    for community in range(len(found)):
        nodes, own = nodes_of(found, community), found.triples_of(community)
        inside = {i for i, (head, _, tail) in enumerate(rows) if head in set(nodes) and tail in set(nodes)}
        assert set(own.tolist()) == inside and inside
        assert own.tolist() == sorted(inside) and nodes.tolist() == sorted(set(nodes.tolist()))
        assert set(nodes.tolist()) == {node for i in inside for node in (rows[i][0], rows[i][2])}
        assert components([(rows[i][0], rows[i][2]) for i in inside], set(nodes.tolist())) == 1
        sets.append(frozenset(inside))
    assert len(set(sets)) == len(sets) > 0
    assert found.run.max() <= 2 and found.level.min() == 0


def test_levels_refine_and_end_in_small_communities():
    found = detect(graph(1, 300, 900), runs=1, max_cluster=5, seed=0)
    nodes = [set(nodes_of(found, community).tolist()) for community in range(len(found))]
    assert found.level.max() >= 1
    for community in np.flatnonzero(found.level > 0):
        above = [nodes[other] for other in np.flatnonzero(found.level == found.level[community] - 1)]
        assert any(nodes[community] <= larger for larger in above)
    sizes = np.diff(found.node_start)
    assert np.median(sizes[found.level == found.level.max()]) <= 5 < sizes[found.level == 0].max()


def test_same_seed_same_communities_and_more_runs_add_some():
    graphs = graph(2, 200, 700)
    one, again, more = (detect(graphs, runs=runs, seed=7) for runs in (2, 2, 6))
    for name in ("node_start", "node", "triple_start", "triple", "run", "level"):
        assert np.array_equal(getattr(one, name), getattr(again, name))
    assert len(more) > len(one) and np.array_equal(more.run[: len(one)], one.run)
    assert more.repeated > one.repeated


def test_triples_keep_their_roles_and_several_relations_are_several_triples():
    rows = [Triple("b", "causes", "a"), Triple("a", "treats", "b"), Triple("b", "is", "a"), Triple("c", "is", "a")]
    found = detect(union({"model": {"x": rows}}), runs=1, seed=0)
    assert {found.triple_names(i) for i in range(4)} == set(rows)
    assert [len(found.triples_of(c)) for c in range(len(found))] == [4]


def test_a_community_without_a_triple_is_dropped_and_counted(monkeypatch: pytest.MonkeyPatch):
    def levels(*_: object) -> Iterator[np.ndarray]:
        yield np.array([0, 0, 0, 0])
        yield np.array([1, 1, 2, 3])  # c and d are on their own
        yield np.array([-1, -1, 4, 4])  # no triple joins them

    monkeypatch.setattr(communities, "_levels", levels)
    rows = [Triple("a", "is", "b"), Triple("b", "is", "c"), Triple("b", "is", "d")]
    found = detect(union({"graph": {"x": rows}}), runs=2, seed=0)
    assert [found.triples_of(c).tolist() for c in range(len(found))] == [[0, 1, 2], [0]]
    assert (found.empty, found.repeated) == (6, 2)
    assert nodes_of(found, 1).tolist() == [0, 1] and found.level.tolist() == [0, 1]


def test_folder_is_read_back_and_damage_is_named(tmp_path: Path):
    found = detect(graph(3, 50, 150), runs=2, seed=1)
    found.write(tmp_path / "communities")
    back = Communities.read(tmp_path / "communities")
    assert (back.entities, back.relations, back.empty, back.repeated) == (
        found.entities,
        found.relations,
        found.empty,
        found.repeated,
    )
    for name in ("triples", "node_start", "node", "triple_start", "triple", "run", "level"):
        assert np.array_equal(getattr(back, name), getattr(found, name))
    (tmp_path / "communities" / "node.npy").unlink()
    with pytest.raises(BadInput, match=r"node\.npy is missing"):
        Communities.read(tmp_path / "communities")


def test_a_graph_that_joins_nothing_is_bad_input():
    with pytest.raises(BadInput, match="0 triples and none joins two entities"):
        detect(union({}), seed=0)
    loop = ConceptGraphs((Triple("a", "is", "a"),), (frozenset({"graph"}),), {})
    with pytest.raises(BadInput, match="1 triples"):
        detect(loop, seed=0)


def nodes_of(found: Communities, community: int) -> np.ndarray:
    return found.node[found.node_start[community] : found.node_start[community + 1]]
