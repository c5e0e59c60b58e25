"""The order of hits: score descending, then item ascending, the same whatever else is in the batch."""

from __future__ import annotations

import importlib.util

import numpy as np

# Scores of equal texts may differ in their last bits with the shape of a batch; rounded, they do not.
DECIMALS = 5


def best(items: np.ndarray, scores: np.ndarray, top_n: int) -> tuple[np.ndarray, np.ndarray]:
    """The `top_n` best items and their rounded scores; among equal rounded scores the lower item wins."""
    if len(items) > top_n:
        kth = np.partition(scores, len(scores) - top_n)[len(scores) - top_n]
        near = scores >= kth - 10.0**-DECIMALS
        items, scores = items[near], scores[near]
    scores = np.round(scores, DECIMALS)
    order = np.lexsort((items, -scores))[:top_n]
    return items[order], scores[order]


BLOCK = 256  # queries whose products with every row are in memory together, without FAISS


def propose(queries: np.ndarray, base: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the k rows of `base` with the highest inner products.

    Returns scores float32 [q, k], highest first, and rows int64 [q, k]. In float32, by FAISS where it is installed:
    ties and last bits are for whoever ranks them anew.
    """
    if importlib.util.find_spec("faiss") is not None:
        import faiss

        return faiss.knn(queries, base, k, metric=faiss.METRIC_INNER_PRODUCT)
    scores, rows = np.empty((len(queries), k), np.float32), np.empty((len(queries), k), np.int64)
    for start in range(0, len(queries), BLOCK):
        products = queries[start : start + BLOCK] @ base.T
        near = np.argpartition(-products, k - 1, axis=1)[:, :k]
        near_scores = np.take_along_axis(products, near, 1)
        order = np.lexsort((near, -near_scores), axis=1)
        rows[start : start + BLOCK] = np.take_along_axis(near, order, 1)
        scores[start : start + BLOCK] = np.take_along_axis(near_scores, order, 1)
    return scores, rows
