"""The shortest paths between two nodes of a large graph, found from both ends (Appendix B.1, KARE).

Paths ignore the direction of the facts they cross, because a connection may be stated either way; the triples of a path
keep it. A path never visits a node twice. Paths come in a fixed order: fewer edges first, and among equals by the
numbers of their nodes from the first end on.

How: partial paths grow from both ends, one level at a time, as trees of (node, parent) pairs. Paths of length L are a
partial path of length a from one end, an edge, and one of length b from the other, a + b + 1 = L; the end that costs
less grows. (Algorithm 2 of the paper joins at common nodes and keeps a single path per visited node, so it misses
paths; the released code also turns facts around.)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from ghar.kg.graph import KnowledgeGraph
from ghar.kg.triples import Triple, concept_name

SCAN = 2_048  # edges looked at together at first: most pairs have all their paths among them
ROWS = 4_096  # partial paths joined together


@dataclass(frozen=True, eq=False)
class PathGraph:
    """V nodes, E facts between different nodes, and for every node its neighbours.

    names, relations: how nodes and relations are said. head, tail: i32[E] nodes; relation: i32[E].
    start: i64[V+1]; near: i32; near[start[v]:start[v + 1]] are the neighbours of v in either direction, ascending.
    pair: i64, ascending, lower * V + higher of each pair of neighbours; the facts between pair i are
    fact[pair_start[i]:pair_start[i + 1]].
    """

    names: Sequence[str]
    relations: Sequence[str]
    head: np.ndarray
    tail: np.ndarray
    relation: np.ndarray
    start: np.ndarray
    near: np.ndarray
    pair: np.ndarray
    pair_start: np.ndarray
    fact: np.ndarray

    def facts_between(self, a: int, b: int) -> list[int]:
        """The facts that join two nodes, in either direction."""
        key = min(a, b) * len(self.names) + max(a, b)
        i = int(np.searchsorted(self.pair, key))
        if i == len(self.pair) or self.pair[i] != key:
            return []
        return self.fact[self.pair_start[i] : self.pair_start[i + 1]].tolist()


@dataclass(frozen=True)
class Paths:
    """paths: tuples of nodes from the first end to the other, in the order of this file. complete: whether there are
    no others within the limits on length and number; else the limit on nodes ended the search, and longer ones may be
    missing, never a shorter one."""

    paths: tuple[tuple[int, ...], ...]
    complete: bool


def make_path_graph(
    names: Sequence[str], relations: Sequence[str], head: np.ndarray, tail: np.ndarray, relation: np.ndarray
) -> PathGraph:
    """The graph of facts head[i] - relation[i] -> tail[i]; a node's relation to itself is left out."""
    proper = head != tail
    head, tail, relation = (array[proper].astype(np.int32) for array in (head, tail, relation))
    low, high = np.minimum(head, tail).astype(np.int64), np.maximum(head, tail)
    key = low * len(names) + high
    fact = np.argsort(key, kind="stable")
    pair, begins = np.unique(key[fact], return_index=True)
    ends = np.stack([pair // len(names), pair % len(names)]) if len(names) else np.empty((2, 0), np.int64)
    both = np.sort(np.concatenate([ends[0] * len(names) + ends[1], ends[1] * len(names) + ends[0]]))
    start = np.searchsorted(both, np.arange(len(names) + 1) * len(names))
    near = (both % max(len(names), 1)).astype(np.int32)
    pair_start = np.append(begins, len(fact))
    return PathGraph(names, relations, head, tail, relation, start, near, pair, pair_start, fact)


def path_graph_of(graph: KnowledgeGraph) -> PathGraph:
    """The facts of a typed graph with its relations as they are read aloud."""
    return make_path_graph(graph.names, graph.displays, graph.head, graph.tail, graph.display)


def triples_of(graph: PathGraph, path: Sequence[int], said: dict[int, str]) -> Iterator[Triple]:
    """Every fact along a path, in its true direction; several relations between two nodes are several triples.

    said: names of nodes that are not to be called as in the graph.
    """

    def name(node: int) -> str:
        return said.get(node) or concept_name(graph.names[node])

    for a, b in pairwise(path):
        for fact in graph.facts_between(a, b):
            head, tail = name(int(graph.head[fact])), name(int(graph.tail[fact]))
            relation = concept_name(graph.relations[graph.relation[fact]])
            if head and tail and relation and head != tail:
                yield Triple(head, relation, tail)


@dataclass(eq=False)
class _Side:
    """Partial paths from one end: level k has those of k edges, ordered by their nodes; node and parent: i32, i64 a
    level, parent being a position in the level before. `other` is the far end, which no partial path may touch."""

    node: list[np.ndarray]
    parent: list[np.ndarray]
    other: int

    def cost(self, graph: PathGraph) -> int:
        """Edges that leave the last level."""
        ends = self.node[-1]
        return int((graph.start[ends + 1] - graph.start[ends]).sum())

    def before(self, level: int, row: np.ndarray) -> Iterator[np.ndarray]:
        """The nodes of partial paths, from their last to the end they began at."""
        for k in range(level, -1, -1):
            yield self.node[k][row]
            row = self.parent[k][row]

    def grow(self, graph: PathGraph) -> None:
        """Add a level: every partial path one edge on, never to a node it has been at."""
        level = len(self.node) - 1
        row, node = _edges(graph, self.node[-1])
        keep = node != self.other
        for visited in self.before(level, row):
            keep &= node != visited
        self.node.append(node[keep])
        self.parent.append(row[keep])


def shortest_paths(
    graph: PathGraph, first: int, last: int, *, max_length: int, max_paths: int, max_nodes: int
) -> Paths:
    """At most `max_paths` shortest paths of at most `max_length` edges between two nodes.

    max_nodes: how many partial paths may be kept in all (the nodes that Algorithm 2 takes from its queues). There is
    no path from a node to itself.
    """
    found: list[tuple[int, ...]] = []
    if first == last or max_paths < 1:
        return Paths((), True)
    ahead, back = (_Side([np.array([a])], [np.zeros(1, np.int64)], b) for a, b in ((first, last), (last, first)))
    kept = 2
    for length in range(1, max_length + 1):
        if length > 1:
            costs = ahead.cost(graph), back.cost(graph)
            if kept + min(costs) > max_nodes:
                return Paths(tuple(found), False)
            side = ahead if costs[0] <= costs[1] else back
            side.grow(graph)
            kept += len(side.node[-1])
            if not len(side.node[-1]):  # everything within reach has been seen
                break
        found += _join(graph, ahead, back, max_paths - len(found))
        if len(found) == max_paths:
            break
    return Paths(tuple(found), True)


def _edges(graph: PathGraph, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(position in `nodes`, neighbour) of every edge that leaves them, in order."""
    begin = graph.start[nodes]
    count = graph.start[nodes + 1] - begin
    row = np.repeat(np.arange(len(nodes)), count)
    shift = np.repeat(begin - np.cumsum(count) + count, count)
    return row, graph.near[shift + np.arange(len(row))]


def _join(graph: PathGraph, ahead: _Side, back: _Side, wanted: int) -> list[tuple[int, ...]]:
    """The first `wanted` paths that consist of a last-level partial path of each side and an edge between them."""
    ends = back.node[-1]
    by_node = np.argsort(ends, kind="stable")
    ordered = ends[by_node]
    rows = np.arange(len(ahead.node[-1]))
    if back.cost(graph) < ahead.cost(graph):  # see first which partial paths have an edge to the other side at all
        touched = np.unique(_edges(graph, ordered)[1])
        if not len(touched):
            return []
        place = np.searchsorted(touched, ahead.node[-1])
        rows = rows[touched[np.minimum(place, len(touched) - 1)] == ahead.node[-1]]
    found: list[tuple[int, ...]] = []
    for part in _in_parts(rows, graph.start[ahead.node[-1][rows] + 1] - graph.start[ahead.node[-1][rows]], SCAN):
        row, node = _edges(graph, ahead.node[-1][part])
        begin = np.searchsorted(ordered, node, "left")
        count = np.searchsorted(ordered, node, "right") - begin
        hit = np.flatnonzero(count)
        for some in _in_parts(hit, count[hit], ROWS):
            each = np.repeat(np.arange(len(some)), count[some])
            shift = np.repeat(begin[some] - np.cumsum(count[some]) + count[some], count[some])
            other = by_node[shift + np.arange(len(each))]
            found += _whole(ahead, part[row[some][each]], back, other)[: wanted - len(found)]
            if len(found) == wanted:
                return found
    return found


def _whole(ahead: _Side, row: np.ndarray, back: _Side, other: np.ndarray) -> list[tuple[int, ...]]:
    """The simple ones among the paths of partial paths `row` of one side and `other` of the other, in order."""
    left = list(ahead.before(len(ahead.node) - 1, row))[::-1]
    right = list(back.before(len(back.node) - 1, other))
    simple = np.ones(len(row), bool)
    for a in left:
        for b in right:
            simple &= a != b
    paths = np.stack([*left, *right], axis=1)[simple]
    return list(map(tuple, paths[np.lexsort(paths.T[::-1])].tolist()))


def _in_parts(rows: np.ndarray, cost: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """`rows` cut into parts of about `size` in cost, each twice the one before."""
    total = np.cumsum(cost)
    begin = 0
    while begin < len(rows):
        done = int(total[begin - 1]) if begin else 0
        end = max(int(np.searchsorted(total, done + size, "right")), begin + 1)
        yield rows[begin:end]
        begin, size = end, size * 2
