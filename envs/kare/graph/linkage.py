"""Average linkage over cosine distance without the matrix of distances, and without approximating it.

For unit vectors the average distance of two clusters A and B is 1 - mean(A) . mean(B), so the sums of their vectors say
it. And average linkage is reducible: a union is never nearer to a third cluster than the nearer of its two parts was
(Muellner 2011). Hence clusters that are each other's nearest may unite in any order, a cluster whose nearest is beyond
the threshold is finished, and only who lost its nearest looks for it again. Memory grows with the names, not with
their pairs. What may differ from another implementation: the order among distances equal to 1e-5, which average linkage
leaves open.
"""

from __future__ import annotations

import numpy as np

from ghar.progress import progress

BLOCK = 1024  # clusters compared with all others at once
TIE_COLUMNS, TIE_SCALE = 4, 1e-3  # a random symmetric 1e-6 added to cosines, so that equal ones do not unite one by one


def average_linkage(unit: np.ndarray, threshold: float, *, seed: int, title: str) -> np.ndarray:
    """int64 [n]: cluster of each row, numbered in the order of first rows; two clusters unite while their average
    cosine distance is at most `threshold`. unit: rows of length 1, or 0 (those stay alone). Exact: see the file's head.
    """
    group = _equal_rows(unit)
    forest = _Forest(unit, group, threshold, np.random.default_rng(seed))
    with progress(len(forest.root), title) as advance:
        while len(lost := forest.lost()):
            forest.look(lost)
            forest.finish(lost)
            forest.unite()
            advance(forest.news())
    return np.unique(forest.roots()[group], return_inverse=True)[1]


class _Forest:
    """Clusters while they grow: slot i belongs to the group of rows i; a union keeps the lower of its two slots."""

    def __init__(self, unit: np.ndarray, group: np.ndarray, threshold: float, rng: np.random.Generator):
        self.sums, self.sizes = sums_of(unit, group), np.bincount(group).astype(np.float64)
        n = len(self.sizes)
        self.noise = rng.uniform(-TIE_SCALE, TIE_SCALE, (n, TIE_COLUMNS)) * self.sizes[:, None]
        self.threshold = threshold
        self.root, self.open, self.left = np.arange(n), np.ones(n, dtype=bool), n
        self.nearest = np.full(n, -1)  # -1: unknown
        self.closeness = np.full(n, -np.inf, dtype=np.float32)

    def lost(self) -> np.ndarray:
        """Open slots that do not know their nearest, or whose nearest is open no longer."""
        if self.open.sum() < 2:
            return np.empty(0, dtype=np.int64)
        return np.flatnonzero(self.open & ((self.nearest < 0) | ~self.open[self.nearest]))

    def look(self, slots: np.ndarray) -> None:
        """Find the nearest open cluster of each of `slots`."""
        others = np.flatnonzero(self.open)
        means = self._means(others)
        for start in range(0, len(slots), BLOCK):
            some = slots[start : start + BLOCK]
            cosines = self._means(some) @ means.T
            cosines[np.arange(len(some)), np.searchsorted(others, some)] = -np.inf
            best = cosines.argmax(axis=1)
            self.nearest[some], self.closeness[some] = others[best], cosines[np.arange(len(some)), best]

    def finish(self, slots: np.ndarray) -> None:
        """Close those of `slots` whose nearest is beyond the threshold: nothing will ever come nearer."""
        near = self.nearest[slots]
        products = np.einsum("nd,nd->n", self.sums[slots], self.sums[near])
        self.open[slots[1 - products / (self.sizes[slots] * self.sizes[near]) > self.threshold]] = False

    def unite(self) -> None:
        """Unite the pairs that are each other's nearest."""
        slots = np.flatnonzero(self.open)
        slots = slots[self.open[self.nearest[slots]]]
        mutual = slots[self.nearest[self.nearest[slots]] == slots]
        if not len(mutual):  # rounding made a circle of equal distances: the closest pair goes first
            mutual = slots[self.closeness[slots].argsort()[-1:]]
        pairs = np.unique(np.sort(np.stack([mutual, self.nearest[mutual]]), axis=0), axis=1)
        low, high = pairs
        for values in (self.sums, self.noise, self.sizes):
            values[low] += values[high]
        self.open[high] = False
        self.root[high] = low
        self.nearest[np.isin(self.nearest, low)] = -1
        self.nearest[low] = -1

    def news(self) -> int:
        """How many slots closed since the last call."""
        before, self.left = self.left, int(self.open.sum())
        return before - self.left

    def roots(self) -> np.ndarray:
        """The slot in which each slot ended."""
        root = self.root
        while (higher := root[root]).tolist() != root.tolist():
            root = higher
        return root

    def _means(self, slots: np.ndarray) -> np.ndarray:
        together = np.hstack([self.sums[slots], self.noise[slots]])
        return (together / self.sizes[slots, None]).astype(np.float32)


def sums_of(unit: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """float64 [labels, d]: the sum of the rows of each label; labels: 0, 1, ..., each of them taken."""
    order = np.argsort(labels, kind="stable")
    starts = np.searchsorted(labels[order], np.arange(labels.max() + 1))
    return np.add.reduceat(unit[order].astype(np.float64), starts, axis=0)


def _equal_rows(unit: np.ndarray) -> np.ndarray:
    """int64 [n]: rows of equal numbers share one, counted from 0; a row of zeros is near to nothing and stays alone."""
    seen: dict[bytes | int, int] = {}
    keys = (row.tobytes() if row.any() else number for number, row in enumerate(unit))
    return np.array([seen.setdefault(key, len(seen)) for key in keys])
