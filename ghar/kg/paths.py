"""The shortest paths between two nodes of a large graph, found from both ends (Appendix B.1, KARE).

Paths ignore the direction of the facts they cross, because a connection may be stated either way; the triples of a path
keep theirs. A path never visits a node twice. Paths come in a fixed order: fewer edges first, and among equals by the
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

SCAN = 2_048  # edges looked at together at first: most pairs have all their paths among them
ROWS = 256  # paths made together at first


@dataclass(frozen=True, eq=False)
class PathGraph:
    """V nodes, E facts between different nodes, and for every node its neighbours.

    names, relations: how nodes and relations are said. head, tail: i32[E] nodes; relation: i32[E].
    start: i64[V+1]; near: i32; near[start[v]:start[v + 1]] are the neighbours of v in either direction, ascending, and
    degree[v] (i64) is their number.
    pair: i64, ascending, lower * V + higher of each pair of neighbours; the facts between pair i are
    fact[pair_start[i]:pair_start[i + 1]].
    """

    names: Sequence[str]
    relations: Sequence[str]
    head: np.ndarray
    tail: np.ndarray
    relation: np.ndarray
    start: np.ndarray
    degree: np.ndarray
    near: np.ndarray
    pair: np.ndarray
    pair_start: np.ndarray
    fact: np.ndarray


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
    return PathGraph(names, relations, head, tail, relation, start, np.diff(start), near, pair, pair_start, fact)


def path_graph_of(graph: KnowledgeGraph) -> PathGraph:
    """The facts of a typed graph with its relations as they are read aloud."""
    return make_path_graph(graph.names, graph.displays, graph.head, graph.tail, graph.display)


def facts_along(graph: PathGraph, paths: Sequence[Sequence[int]]) -> np.ndarray:
    """Every fact (i32) between two nodes that follow each other on one of the paths, ascending, in either direction."""
    steps = [pair for path in paths for pair in pairwise(path)]
    if not steps:
        return np.empty(0, np.int32)
    ends = np.sort(np.unique(np.array(steps, np.int64), axis=0), axis=1)
    place = np.searchsorted(graph.pair, ends[:, 0] * len(graph.names) + ends[:, 1])
    _, at = _spread(graph.pair_start[place], graph.pair_start[place + 1] - graph.pair_start[place])
    return np.unique(graph.fact[at]).astype(np.int32)


class PathSearch:
    """Searches one graph, one pair after the other (it keeps notes on the nodes: not for several threads at once)."""

    def __init__(self, graph: PathGraph, *, max_length: int, max_paths: int, max_nodes: int):
        """At most `max_paths` shortest paths of at most `max_length` edges are looked for. max_nodes: how many partial
        paths may be kept in all (the nodes that Algorithm 2 takes from its queues)."""
        self.graph, self.max_length, self.max_paths, self.max_nodes = graph, max_length, max_paths, max_nodes
        self._noted = np.zeros(len(graph.names), bool)

    def find(self, first: int, last: int) -> Paths:
        """The paths between two nodes; there is none from a node to itself."""
        paths: list[tuple[int, ...]] = []
        if first == last:
            return Paths((), True)
        ahead, back = _Side(self.graph, first, last), _Side(self.graph, last, first)
        kept = 2
        for length in range(1, self.max_length + 1):
            if length > 1:
                side = ahead if ahead.cost <= back.cost else back
                if kept + side.cost > self.max_nodes:
                    return Paths(tuple(paths), False)
                side.grow()
                kept += len(side.ends)
                if not len(side.ends):  # everything within reach has been seen
                    break
            paths += self._join(ahead, back, self.max_paths - len(paths))
            if len(paths) == self.max_paths:
                break
        return Paths(tuple(paths), True)

    def _join(self, ahead: _Side, back: _Side, wanted: int) -> list[tuple[int, ...]]:
        """The first `wanted` paths that consist of a partial path of each side and an edge between them."""
        if ahead.cost <= back.cost:
            parts = iter([ahead.edges])
        else:  # see first which partial paths have an edge to the other side at all
            _, touched = back.edges
            rows = self._among(touched, ahead.ends)
            if not len(rows):
                return []
            parts = map(ahead.edges_of, _in_parts(rows, ahead.degree[rows], SCAN))
        paths: list[tuple[int, ...]] = []
        by_node: np.ndarray | None = None
        for row, node in parts:
            hit = self._among(back.ends, node)
            if not len(hit):
                continue
            if by_node is None:
                by_node = back.ends.argsort(kind="stable")
            ordered = back.ends[by_node]
            begin = ordered.searchsorted(node[hit], "left")
            count = ordered.searchsorted(node[hit], "right") - begin
            for some in _in_parts(np.arange(len(hit)), count, ROWS):
                each, other = _spread(begin[some], count[some])
                paths += _whole(ahead, row[hit[some]][each], back, by_node[other], wanted - len(paths))
                if len(paths) == wanted:
                    return paths
        return paths

    def _among(self, nodes: np.ndarray, asked: np.ndarray) -> np.ndarray:
        """The positions of those of `asked` that are among `nodes`."""
        self._noted[nodes] = True
        positions = self._noted[asked].nonzero()[0]
        self._noted[nodes] = False
        return positions


class _Side:
    """Partial paths from one end: level k has those of k edges, ordered by their nodes. A level is (node: i32[n],
    parent: i64[n], a position in the level before). `other` is the far end, which no partial path may touch."""

    def __init__(self, graph: PathGraph, end: int, other: int):
        self.graph, self.other = graph, other
        self.levels: list[tuple[np.ndarray, np.ndarray]] = []
        self._add(np.array([end], np.int32), np.zeros(1, np.int64))

    def _add(self, node: np.ndarray, parent: np.ndarray) -> None:
        self.levels.append((node, parent))
        self.ends = node
        self.degree = self.graph.degree[node]
        self.cost = int(self.degree.sum())  # edges that leave the last level
        self._edges: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def edges(self) -> tuple[np.ndarray, np.ndarray]:
        """(position in the last level, neighbour) of every edge that leaves it, in order."""
        if self._edges is None:
            each, place = _spread(self.graph.start[self.ends], self.degree)
            self._edges = each, self.graph.near[place]
        return self._edges

    def edges_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same of some positions."""
        nodes = self.ends[rows]
        each, place = _spread(self.graph.start[nodes], self.degree[rows])
        return rows[each], self.graph.near[place]

    def before(self, row: np.ndarray) -> Iterator[np.ndarray]:
        """The nodes of partial paths of the last level, from their last to the end they began at."""
        for node, parent in reversed(self.levels):
            yield node[row]
            row = parent[row]

    def grow(self) -> None:
        """Add a level: every partial path one edge on, never to a node it has been at."""
        row, node = self.edges
        keep = node != self.other
        for visited in self.before(row):
            keep &= node != visited
        self._add(node[keep], row[keep])


def _spread(begin: np.ndarray, count: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(i, begin[i] + k) for every i and every k < count[i], in order."""
    each = np.arange(len(count)).repeat(count)
    return each, (begin - count.cumsum() + count).repeat(count) + np.arange(len(each))


def _whole(ahead: _Side, row: np.ndarray, back: _Side, other: np.ndarray, wanted: int) -> list[tuple[int, ...]]:
    """The first simple ones among the paths of partial paths `row` of one side and `other` of the other."""
    left = list(ahead.before(row))[::-1]
    right = list(back.before(other))
    simple = np.ones(len(row), bool)
    for a in left:
        for b in right:
            simple &= a != b
    paths = np.stack([*left, *right], axis=1)[simple]
    return list(map(tuple, paths[np.lexsort(paths.T[::-1])[:wanted]].tolist()))


def _in_parts(rows: np.ndarray, cost: np.ndarray, size: int) -> Iterator[np.ndarray]:
    """`rows` cut into parts of about `size` in cost, each twice the one before."""
    begin, total = 0, cost.cumsum()
    if len(rows) and total[-1] <= size:
        yield rows
        return
    while begin < len(rows):
        done = int(total[begin - 1]) if begin else 0
        end = max(int(total.searchsorted(done + size, "right")), begin + 1)
        yield rows[begin:end]
        begin, size = end, size * 2
