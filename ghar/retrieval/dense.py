"""Exact inner-product search with FAISS over one matrix of unit vectors, which may lie on disk."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ghar.ranking import DECIMALS, best, propose
from ghar.retrieval.encoders import Encoder

Hits = tuple[np.ndarray, np.ndarray]

# FAISS is asked for a few more than wanted, so that ties at the cut-off are seen and broken by our rule.
SPARE = 16
CHUNK = 20_000


@dataclass(frozen=True, eq=False)
class DenseIndex:
    """`matrix` is f32[items, dimension]. A partition is a range or a list of its rows, never a copy."""

    matrix: np.ndarray
    encoder: Encoder

    def encode(self, queries: Sequence[str]) -> list[np.ndarray]:
        return list(np.ascontiguousarray(self.encoder.queries(queries), dtype=np.float32))

    def search(self, queries: Sequence[np.ndarray], items: range | np.ndarray, top_n: int) -> list[Hits]:
        """For each query the `top_n` best of `items` (a range, or ascending numbers) and their cosines."""
        if not len(items):
            return [(np.empty(0, np.int64), np.empty(0)) for _ in queries]
        wanted = min(top_n + SPARE, len(items))
        stacked = np.stack(queries)
        if isinstance(items, range):
            near, scores = _in_range(stacked, self.matrix, items, wanted)
        else:
            near, scores = _in_list(stacked, self.matrix, items, wanted)
        results = []
        for query, rows, approximate in zip(queries, near, scores, strict=True):
            # A full list whose end still ties with place top_n may have cut ties off: then look at every item.
            tied = wanted < len(items) and approximate[-1] > approximate[top_n - 1] - 3 * 10.0**-DECIMALS
            rows = np.asarray(items, dtype=np.int64) if tied else rows
            results.append(best(rows, self._cosines(query, rows), top_n))
        return results

    def _cosines(self, query: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """f64, row by row, so that a cosine does not depend on the batch it was computed in."""
        parts = [
            (self.matrix[rows[i : i + CHUNK]].astype(np.float64) * query).sum(axis=1)
            for i in range(0, len(rows), CHUNK)
        ]
        return np.concatenate(parts)


def _in_range(queries: np.ndarray, matrix: np.ndarray, items: range, k: int) -> Hits:
    scores, rows = propose(queries, matrix[items.start : items.stop], k)
    return rows + items.start, scores


def _in_list(queries: np.ndarray, matrix: np.ndarray, items: np.ndarray, k: int) -> Hits:
    if importlib.util.find_spec("faiss") is None:
        scores, rows = propose(queries, matrix[items], k)
        return items[rows], scores
    import faiss

    ids = np.ascontiguousarray(items, dtype=np.int64)
    selector = faiss.IDSelectorArray(len(ids), faiss.swig_ptr(ids))
    scores = np.empty((len(queries), k), dtype=np.float32)
    rows = np.empty((len(queries), k), dtype=np.int64)
    pointers = [faiss.swig_ptr(array) for array in (queries, matrix, scores, rows)]
    sizes = (matrix.shape[1], len(queries), len(matrix), k)
    faiss.knn_inner_product(pointers[0], pointers[1], *sizes, pointers[2], pointers[3], selector)
    return rows, scores


def fill_matrix(
    matrix: np.ndarray,
    encoder: Encoder,
    first: np.ndarray,
    texts: Callable[[np.ndarray], list[str]],
    advance: Callable[[int], object],
) -> None:
    """Encode items 0..n-1 into the rows of `matrix`, each distinct text once.

    first: i64[n], the first item with the same text; texts: those of ascending items; advance: told how many are
    done.
    """
    for begin in range(0, len(first), CHUNK):
        here = np.arange(begin, min(begin + CHUNK, len(first)))
        new = here[first[here] == here]
        if len(new):
            matrix[new] = encoder.passages(texts(new))
        repeated = here[first[here] != here]
        matrix[repeated] = matrix[first[repeated]]
        advance(len(here))
