"""The patient graph: who is like whom, in which cohort, and what a cohort is like on average.

GraphWalker, Section 4.1: symmetrised k-NN graph by cosine (Eq. 2), cohorts by modularity (Eq. 3) and prototypes, the
means of the vectors as they are, not of unit vectors (Eq. 4). Defaults: k=8, resolution 0.9 (Appendix G).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ghar.arrays import load_arrays, save_arrays, unit_rows
from ghar.envs.graphwalker.selectors.cohorts import Method, find_cohorts
from ghar.envs.graphwalker.selectors.neighbours import k_nearest, merge
from ghar.errors import BadInput


@dataclass(frozen=True, eq=False)
class PatientGraph:
    """n patients in c cohorts.

    vectors: float32 [n, d]. near: int64 [n, k], the k nearest of each patient, best first (the released code walks
    along these), closeness: float32 [n, k], their cosines. starts int64 [n + 1], neighbours int64: the symmetrised
    graph (the paper's), those of patient i are neighbours[starts[i]:starts[i + 1]], ascending. cohorts: int64 [n],
    numbered in the order of their first patients. prototypes: float32 [c, d].
    """

    ids: tuple[str, ...]
    vectors: np.ndarray
    near: np.ndarray
    closeness: np.ndarray
    starts: np.ndarray
    neighbours: np.ndarray
    cohorts: np.ndarray
    prototypes: np.ndarray
    resolution: float
    method: Method
    seed: int

    @cached_property
    def row_of(self) -> dict[str, int]:
        """Row of each id."""
        return {name: row for row, name in enumerate(self.ids)}

    def neighbours_of(self, row: int) -> np.ndarray:
        """Rows that share an edge with `row`, ascending."""
        return self.neighbours[self.starts[row] : self.starts[row + 1]]

    def members_of(self, cohort: int) -> np.ndarray:
        """Rows of a cohort, ascending."""
        return np.flatnonzero(self.cohorts == cohort)

    def save(self, path: Path) -> None:
        """Write one npz file, whole or not at all."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        about = {name: np.array(getattr(self, name)) for name in ("ids", "resolution", "method", "seed")}
        save_arrays(path, **arrays, **about)

    @classmethod
    def load(cls, path: Path) -> PatientGraph:
        """Read what `save` wrote. Raises BadInput for a damaged file."""
        arrays = load_arrays(path, (*_ARRAYS, "ids", "resolution", "method", "seed"))
        about = {name: arrays[name].item() for name in ("resolution", "method", "seed")}
        return cls(ids=tuple(arrays["ids"].tolist()), **{name: arrays[name] for name in _ARRAYS}, **about)


_ARRAYS = ("vectors", "near", "closeness", "starts", "neighbours", "cohorts", "prototypes")


def build_graph(
    vectors: np.ndarray,
    ids: Sequence[str],
    k: int = 8,
    resolution: float = 0.9,
    method: Method = "leiden",
    seed: int = 0,
) -> PatientGraph:
    """The graph of patients `ids` with `vectors` [n, d]. The same seed, the same graph.

    Raises BadInput for k or fewer patients, ids that repeat, and vectors that are not finite.
    """
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    _check(ids, vectors, k)
    unit = unit_rows(vectors)
    near, closeness = k_nearest(unit, unit, k, first=0)
    return _assemble(tuple(ids), vectors, near, closeness, resolution, method, seed)


def add(graph: PatientGraph, vectors: np.ndarray, ids: Sequence[str]) -> PatientGraph:
    """The graph with more training patients, who get the last rows: the same as one built anew, cohorts included.

    Only the new patients are compared with all; cohorts, a small part of the time, are found again.
    Raises BadInput as `build_graph`, and for vectors of another width.
    """
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    if not len(ids):
        return graph
    if vectors.ndim != 2 or vectors.shape[1] != graph.vectors.shape[1]:
        raise BadInput(f"New vectors have shape {vectors.shape}, the graph's {graph.vectors.shape}: use its encoder.")
    together = np.concatenate([graph.vectors, vectors])
    names, old, k = (*graph.ids, *ids), len(graph.ids), graph.near.shape[1]
    _check(names, together, k)
    unit = unit_rows(together)
    near, closeness = k_nearest(unit[old:], unit, k, first=old)
    rows, cosines = k_nearest(unit[:old], unit[old:], min(k, len(ids)))
    kept = merge(graph.near, graph.closeness, rows + old, cosines)
    near, closeness = np.concatenate([kept[0], near]), np.concatenate([kept[1], closeness])
    return _assemble(names, together, near, closeness, graph.resolution, graph.method, graph.seed)


def _check(ids: Sequence[str], vectors: np.ndarray, k: int) -> None:
    if len(ids) != len(vectors):
        raise BadInput(f"{len(ids)} ids and {len(vectors)} vectors: give one vector per patient.")
    if len(set(ids)) < len(ids):
        repeated = next(name for i, name in enumerate(ids) if name in ids[:i])
        raise BadInput(f"Patient {repeated} is in the graph twice: give each only once.")
    if len(ids) <= k:
        raise BadInput(
            f"{len(ids)} patients have no {k} neighbours each: lower k to at most {len(ids) - 1} or use more patients."
        )


def _assemble(
    ids: tuple[str, ...],
    vectors: np.ndarray,
    near: np.ndarray,
    closeness: np.ndarray,
    resolution: float,
    method: Method,
    seed: int,
) -> PatientGraph:
    starts, neighbours, cosines = symmetrised(near, closeness)
    cohorts = find_cohorts(starts, neighbours, cosines, resolution, method, seed)
    sums = np.zeros((cohorts.max() + 1, vectors.shape[1]))
    np.add.at(sums, cohorts, vectors)
    prototypes = (sums / np.bincount(cohorts)[:, None]).astype(np.float32)
    return PatientGraph(
        ids, vectors, near, closeness, starts, neighbours, cohorts, prototypes, resolution, method, seed
    )


def symmetrised(near: np.ndarray, closeness: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """CSR of the undirected union of the lists: starts [n + 1], neighbours and their cosines, ascending by row."""
    n, k = near.shape
    heads, tails, values = np.repeat(np.arange(n), k), near.ravel(), closeness.ravel()
    keys = np.concatenate([heads * n + tails, tails * n + heads])
    keys, first = np.unique(keys, return_index=True)
    starts = np.searchsorted(keys, np.arange(n + 1) * n)
    return starts, keys % n, np.concatenate([values, values])[first]
