"""The order of hits: score descending, then item ascending, the same whatever else is in the batch."""

from __future__ import annotations

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
