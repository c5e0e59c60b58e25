"""Paired tests of two policies on the same patients, their correction for several tests, and their power."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def p_of(drawn: np.ndarray, scale: float = 1.0) -> float:
    """Two-sided p of no difference, from the difference on each resample [R]: twice the smaller share that is at or
    beyond 0. Those that are undefined (NaN) are left out.

    The samples themselves count as one more resample, so that it is never 0: the least is 2 / (R + 1). scale: of the
    numbers, next to which sums of floats that cancel count as 0.
    """
    values = drawn[~np.isnan(drawn)]
    values = np.where(np.abs(values) < 1e-12 * scale, 0.0, values)
    smaller = min((values <= 0).sum(), (values >= 0).sum())
    return min(1.0, 2 * (int(smaller) + 1) / (len(values) + 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's (1979) adjusted p of each test, in the order given: reject those at or below the level that all tests
    together may err at. Raises ValueError for numbers outside 0..1."""
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"p values lie in 0..1, got {list(p_values)}")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, at in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[at]))
        adjusted[at] = largest
    return adjusted


def detectable_difference(samples: int, disagree: float, power: float = 0.8, level: float = 0.05) -> float:
    """Compute the smallest difference of two paired accuracies that McNemar's two-sided test shows with this power.

    disagree: share of samples, independent of each other, on which exactly one of the two is right. The formula is
    Connor's (1987): z(1 - level/2) sqrt(disagree) + z(power) sqrt(disagree - d^2) = d sqrt(samples). NaN where not even
    d = disagree, one of the two never right alone, is shown so often.
    """
    from scipy.stats import norm  # a second to import

    reject, reach = float(norm.ppf(1 - level / 2)), float(norm.ppf(power))

    def lacking(d: float) -> float:
        return reject * math.sqrt(disagree) + reach * math.sqrt(disagree - d * d) - d * math.sqrt(samples)

    low, high = 0.0, disagree
    if disagree <= 0 or lacking(high) > 0:
        return math.nan
    for _ in range(60):  # halvings, beyond the precision of floats
        middle = (low + high) / 2
        low, high = (middle, high) if lacking(middle) > 0 else (low, middle)
    return high
