"""Is one policy better than another on the same patients, and how many such questions were asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ghar.metrics.bootstrap import RESAMPLES, Patients, differences, resampled, weighted_mean


def paired_p_value(
    a: Sequence[float] | np.ndarray,
    b: Sequence[float] | np.ndarray,
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> float:
    """Two-sided p of mean(a) = mean(b) on the same samples: twice the smaller share of resamples, patients drawn
    whole, whose difference is at or beyond 0.

    It agrees with `paired_difference` of the same seed: below 0.05, up to one resample, where that interval leaves 0
    out. The samples themselves count as one more resample, so that it is never 0: the least is 2 / (resamples + 1).
    Raises ValueError unless a and b match one to one, and without values.
    """
    apart = differences(a, b)
    if not apart.size or not np.isfinite(apart).all():
        raise ValueError("a test needs at least one pair of values, and finite ones only")
    draw: dict[str, Any] = {"patients": patients, "seed": seed, "resamples": resamples}
    drawn = resampled(lambda w: {"difference": weighted_mean(w, apart)}, len(apart), **draw)["difference"][1]
    return p_of(drawn, float(np.abs(apart).max()))


def p_of(drawn: np.ndarray, scale: float = 1.0) -> float:
    """The same of the differences on each resample; those that are undefined (NaN) are left out. scale: of the
    numbers, next to which sums of floats that cancel count as 0."""
    known = drawn[~np.isnan(drawn)]
    known = np.where(np.abs(known) < 1e-12 * scale, 0.0, known)
    smaller = min((known <= 0).sum(), (known >= 0).sum())
    return min(1.0, 2 * (int(smaller) + 1) / (len(known) + 1))


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
