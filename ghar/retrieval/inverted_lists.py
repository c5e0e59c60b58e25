"""Inverted lists: a large partition is searched where a query's neighbours are likely, not from end to end.

The items of a partition are grouped around sqrt(n) centroids (spherical k-means); a query reads the lists of the
centroids nearest to it. What it reads is scored exactly, so scores are right and only a hit far from its list's
centroid can be missed (Jégou et al. 2011; `benchmarks/run.py retrieval` measures how often). Partitions of at most
`SMALL` items have no lists and are always read whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ghar.kg.graph import KnowledgeGraph
from ghar.progress import track
from ghar.storage import read_array, write_arrays

SMALL = 8192
ITERATIONS = 8
SAMPLE = 64  # items per centroid that k-means sees
CHUNK = 65_536
SEED = 0

NODES, EDGES = 0, 1
Part = tuple[int, int]  # partition, NODES or EDGES


@dataclass(frozen=True, eq=False)
class InvertedLists:
    """List l holds items[start[l]:start[l+1]], ascending, around centroids[l].

    parts: i64[P, 3] rows (partition, NODES or EDGES, first list), ascending; the lists of a part end where those of the
    next begin. centroids: f32[L, dimension] of unit length. start: i64[L+1]. items: i32, numbered as in texts.py.
    """

    parts: np.ndarray
    centroids: np.ndarray
    start: np.ndarray
    items: np.ndarray

    def has(self, part: Part) -> bool:
        """Whether a part is large enough to have lists."""
        return self._row(part) is not None

    def candidates(self, part: Part, query: np.ndarray, probes: int, at_least: int) -> np.ndarray:
        """The items of the `probes` lists nearest to `query` (of more, until they are `at_least`), ascending."""
        row = self._row(part)
        assert row is not None, "ask has() first"
        low = int(self.parts[row, 2])
        high = int(self.parts[row + 1, 2]) if row + 1 < len(self.parts) else len(self.centroids)
        nearest = low + np.argsort(-(self.centroids[low:high] @ query), kind="stable")
        sizes = np.cumsum(self.start[nearest + 1] - self.start[nearest])
        enough = max(probes, int(np.searchsorted(sizes, at_least)) + 1)
        lists = [self.items[self.start[i] : self.start[i + 1]] for i in nearest[:enough]]
        return np.sort(np.concatenate(lists)).astype(np.int64)

    def _row(self, part: Part) -> int | None:
        rows = np.flatnonzero((self.parts[:, 0] == part[0]) & (self.parts[:, 1] == part[1]))
        return int(rows[0]) if len(rows) else None

    def save(self, folder: Path) -> None:
        """Write the arrays into an existing folder."""
        write_arrays(folder, {name: getattr(self, name) for name in ("parts", "centroids", "start", "items")})

    @classmethod
    def load(cls, folder: Path) -> InvertedLists:
        """Open saved arrays memory-mapped; `BadInput` names one that is missing or damaged."""
        return cls(*(read_array(folder, name) for name in ("parts", "centroids", "start", "items")))


def build_lists(graph: KnowledgeGraph, matrix: np.ndarray) -> InvertedLists:
    """Group the nodes and the edges of every large partition. matrix: f32[V+E, dimension], unit vectors.

    Beside the matrix, which may lie on disk, it needs SAMPLE * sqrt(n) vectors and 16 bytes per item in memory.
    """
    parts, centroids, sizes, items = [], [np.empty((0, matrix.shape[1]), np.float32)], [], [np.empty(0, np.int32)]
    for part, members in track(list(_large_parts(graph)), "Group the large partitions", unit="partitions"):
        parts.append((*part, sum(len(c) for c in centroids)))
        centres, order, counts = _group(matrix, members)
        centroids.append(centres)
        sizes.append(counts)
        items.append(order)
    return InvertedLists(
        np.array(parts, dtype=np.int64).reshape(-1, 3),
        np.concatenate(centroids),
        np.cumsum(np.concatenate([[0], *sizes])).astype(np.int64),
        np.concatenate(items),
    )


def _large_parts(graph: KnowledgeGraph) -> Iterator[tuple[Part, range | np.ndarray]]:
    for partition in range(graph.num_paths):
        edges = graph.edges_of_path(partition)
        nodes = graph.nodes_of_path(partition)
        if len(nodes) > SMALL:
            yield (partition, NODES), nodes
        if len(edges) > SMALL:
            yield (partition, EDGES), range(graph.num_nodes + edges.start, graph.num_nodes + edges.stop)


def _group(matrix: np.ndarray, members: range | np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Centroids, the members in order of their lists (ascending within one), and the lists' sizes."""
    import faiss

    numbers = np.asarray(members, dtype=np.int32)
    count = round(len(numbers) ** 0.5)
    sample = np.random.default_rng(SEED).choice(len(numbers), min(len(numbers), SAMPLE * count), replace=False)
    options = {"niter": ITERATIONS, "spherical": True, "seed": SEED, "max_points_per_centroid": SAMPLE}
    means = faiss.Kmeans(matrix.shape[1], count, **options)
    means.train(matrix[numbers[np.sort(sample)]])
    owner = np.empty(len(numbers), dtype=np.int32)
    for begin in range(0, len(numbers), CHUNK):
        rows = matrix[numbers[begin : begin + CHUNK]]
        owner[begin : begin + CHUNK] = means.index.search(rows, 1)[1][:, 0]  # type: ignore[union-attr]
    assert means.centroids is not None
    order = np.argsort(owner, kind="stable")
    return means.centroids, numbers[order], np.bincount(owner, minlength=count)
