"""95% intervals by the percentile bootstrap over samples (Efron, 1979).

Every number here is a function of sums over samples, so a resample is a row of weights (how often each sample
was drawn) and a thousand resamples are one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

RESAMPLES = 1000
_CHUNK = 2_000_000  # weights held at once: 16 MB


@dataclass(frozen=True)
class Interval:
    """A number and its 95% interval."""

    value: float
    low: float
    high: float

    def as_list(self) -> list[float]:
        """[value, low, high], as summary.json holds it."""
        return [self.value, self.low, self.high]

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True)
class Spread:
    """A number on the samples themselves, and mean and standard deviation over resamples: how GraphWalker's tables
    give theirs (84.19±3.35)."""

    value: float
    mean: float
    deviation: float

    def as_list(self) -> list[float]:
        """[value, mean, deviation], as summary.json holds it."""
        return [self.value, self.mean, self.deviation]

    def __str__(self) -> str:
        return f"{100 * self.mean:.2f}±{100 * self.deviation:.2f}"


def resample_weights(n: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Yield blocks [r, n] of draw counts, `resamples` rows in all, each row summing to n."""
    rng = np.random.default_rng(seed)
    rows_left = resamples
    while rows_left:
        rows = min(rows_left, max(1, _CHUNK // n))
        draws = rng.integers(0, n, (rows, n)) + np.arange(rows)[:, None] * n
        yield np.bincount(draws.ravel(), minlength=rows * n).reshape(rows, n).astype(float)
        rows_left -= rows


def intervals(
    statistic: Callable[[np.ndarray], dict[str, np.ndarray]], n: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Interval]:
    """Intervals of every number `statistic` computes from weights.

    statistic: weights [r, n] -> {name: [r]}, NaN where a resample leaves the number undefined.
    Names that are undefined on the samples themselves, or on every resample, are left out.
    """
    result = {}
    for name, (value, drawn) in _resampled(statistic, n, seed, resamples).items():
        low, high = np.nanpercentile(drawn, [2.5, 97.5])
        result[name] = Interval(value, float(low), float(high))
    return result


def spreads(
    statistic: Callable[[np.ndarray], dict[str, np.ndarray]], n: int, *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Spread]:
    """As `intervals`, with mean and standard deviation over the resamples that leave the number defined."""
    found = _resampled(statistic, n, seed, resamples)
    return {name: Spread(value, float(np.nanmean(x)), float(np.nanstd(x))) for name, (value, x) in found.items()}


def _resampled(
    statistic: Callable[[np.ndarray], dict[str, np.ndarray]], n: int, seed: int, resamples: int
) -> dict[str, tuple[float, np.ndarray]]:
    """Every number on the samples themselves and on each resample, those left out that are undefined."""
    values = {name: float(v[0]) for name, v in statistic(np.ones((1, n))).items()}
    blocks = [statistic(weights) for weights in resample_weights(n, resamples, seed)]
    drawn = {name: np.concatenate([block[name] for block in blocks]) for name in values}
    return {name: (x, drawn[name]) for name, x in values.items() if not (np.isnan(x) or np.isnan(drawn[name]).all())}


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator, NaN where the denominator is zero."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    return np.divide(numerator, denominator, out=np.full(shape, np.nan), where=np.asarray(denominator) != 0)


def mean_interval(values: Sequence[float] | np.ndarray, *, seed: int = 0, resamples: int = RESAMPLES) -> Interval:
    """Mean of one finite value per sample. Raises ValueError without values or with one that is not finite."""
    array = np.asarray(values, dtype=float)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError("a mean needs at least one value, and finite ones only")
    return intervals(lambda w: {"mean": w @ array / len(array)}, len(array), seed=seed, resamples=resamples)["mean"]


def ratio_interval(
    numerators: Sequence[float] | np.ndarray,
    denominators: Sequence[float] | np.ndarray,
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """sum(numerators) / sum(denominators), samples drawn whole; None when the denominators sum to zero."""
    over, under = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    found = intervals(lambda w: {"ratio": ratio(w @ over, w @ under)}, len(over), seed=seed, resamples=resamples)
    return found.get("ratio")


def paired_difference(
    a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray, *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """mean(a) - mean(b) of two policies on the same samples in the same order, samples drawn in pairs."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.shape != second.shape:
        raise ValueError(f"paired values must match one to one, got {len(first)} and {len(second)}")
    return mean_interval(first - second, seed=seed, resamples=resamples)
