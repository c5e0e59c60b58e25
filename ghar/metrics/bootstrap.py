"""95% intervals by the percentile bootstrap over patients (Efron, 1979; cluster bootstrap, Davison and Hinkley, 1997).

Samples (stays, questions, label times) of one patient are alike, so whole patients are drawn and every sample comes
as often as its patient. Every number here is a function of weighted sums over samples, so a resample is a row of
weights and a thousand resamples are one matrix product. Weights of a resample add up to the number of samples only
where every patient has one sample: a mean divides by their sum.

`patients` everywhere: the patient of each sample, in the order of the samples; None makes every sample its own
patient, which is right only for data that has no patients.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Statistic = Callable[[np.ndarray], dict[str, np.ndarray]]  # weights [r, n] -> {name: [r]}
Patients = Sequence[Hashable] | None
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
class BootstrapSpread:
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


def resample_weights(n: int, resamples: int, seed: int, patients: Patients = None) -> Iterator[np.ndarray]:
    """Yield blocks [r, n] of how often each sample was drawn, `resamples` rows in all; patients are drawn whole.

    The draws depend on the order of the patients alone: with one sample a patient they are those of `patients` None.
    Raises ValueError unless there is one patient a sample.
    """
    codes, count = patient_codes(n, patients)
    for drawn in patient_weights(count, resamples, seed, width=n):
        yield drawn if count == n else drawn[:, codes]


def patient_codes(n: int, patients: Patients) -> tuple[np.ndarray, int]:
    """int [n], each sample's patient by number in order of first appearance, and the number of patients."""
    if patients is None:
        return np.arange(n), n
    if len(patients) != n:
        raise ValueError(f"{n} samples and {len(patients)} patients: give the patient of each sample")
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(patient, len(numbers)) for patient in patients], dtype=np.int64), len(numbers)


def patient_weights(count: int, resamples: int, seed: int, width: int) -> Iterator[np.ndarray]:
    """Yield blocks [r, count] of draw counts, each row summing to count; a block has room for rows of `width`."""
    rng = np.random.default_rng(seed)
    rows_left = resamples
    while rows_left:
        rows = min(rows_left, max(1, _CHUNK // width))
        draws = rng.integers(0, count, (rows, count)) + np.arange(rows)[:, None] * count
        yield np.bincount(draws.ravel(), minlength=rows * count).reshape(rows, count).astype(float)
        rows_left -= rows


def intervals(
    statistic: Statistic, n: int, *, patients: Patients, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Interval]:
    """Intervals of every number `statistic` computes from weights [r, n], NaN where a resample leaves it undefined.

    Names that are undefined on the samples themselves, or on every resample, are left out.
    """
    result = {}
    for name, (value, drawn) in resampled(statistic, n, patients, seed, resamples).items():
        result[name] = Interval(value, *percentiles(value, drawn))
    return result


def spreads(
    statistic: Statistic, n: int, *, patients: Patients, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, BootstrapSpread]:
    """As `intervals`, with mean and standard deviation over the resamples that leave the number defined."""
    draws = resampled(statistic, n, patients, seed, resamples)
    return {
        name: BootstrapSpread(value, float(np.nanmean(x)), float(np.nanstd(x))) for name, (value, x) in draws.items()
    }


def percentiles(value: float, drawn: np.ndarray, centred: bool = False) -> tuple[float, float]:
    """The 2.5th and 97.5th percentile of the resamples that are defined.

    centred: moved by as much as the resamples lie above the value. Drawing makes what cannot be negative larger (a sum
    of absolute gaps, a range): unmoved, its interval could lie above the value itself.
    """
    low, high = np.nanpercentile(drawn, [2.5, 97.5]) - (np.nanmean(drawn) - value if centred else 0.0)
    return float(low), float(high)


def resampled(
    statistic: Statistic, n: int, patients: Patients, seed: int, resamples: int
) -> dict[str, tuple[float, np.ndarray]]:
    """Every number on the samples themselves and on each resample [resamples], those left out that are undefined."""
    values = {name: float(v[0]) for name, v in statistic(np.ones((1, n))).items()}
    blocks = [statistic(weights) for weights in resample_weights(n, resamples, seed, patients)]
    drawn = {name: np.concatenate([block[name] for block in blocks]) for name in values}
    return {name: (x, drawn[name]) for name, x in values.items() if not (np.isnan(x) or np.isnan(drawn[name]).all())}


def ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """numerator / denominator, NaN where the denominator is zero."""
    shape = np.broadcast_shapes(np.shape(numerator), np.shape(denominator))
    return np.divide(numerator, denominator, out=np.full(shape, np.nan), where=np.asarray(denominator) != 0)


def weighted_mean(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Mean [r] of one value a sample [n] under weights [r, n]."""
    return weights @ values / weights.sum(axis=1)


def mean_interval(
    values: Sequence[float] | np.ndarray, *, patients: Patients, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Mean of one finite value per sample. Raises ValueError without values or with one that is not finite."""
    array = np.asarray(values, dtype=float)
    if array.size == 0 or not np.isfinite(array).all():
        raise ValueError("a mean needs at least one value, and finite ones only")
    draw: dict[str, Any] = {"patients": patients, "seed": seed, "resamples": resamples}
    return intervals(lambda w: {"mean": weighted_mean(w, array)}, len(array), **draw)["mean"]


def ratio_interval(
    numerators: Sequence[float] | np.ndarray,
    denominators: Sequence[float] | np.ndarray,
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval | None:
    """sum(numerators) / sum(denominators) over the samples; None when the denominators sum to zero."""
    over, under = np.asarray(numerators, dtype=float), np.asarray(denominators, dtype=float)
    draw: dict[str, Any] = {"patients": patients, "seed": seed, "resamples": resamples}
    return intervals(lambda w: {"ratio": ratio(w @ over, w @ under)}, len(over), **draw).get("ratio")


def paired_difference(
    a: Sequence[float] | np.ndarray,
    b: Sequence[float] | np.ndarray,
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> Interval:
    """mean(a) - mean(b) of two policies on the same samples in the same order, both drawn together."""
    return mean_interval(differences(a, b), patients=patients, seed=seed, resamples=resamples)


def differences(a: Sequence[float] | np.ndarray, b: Sequence[float] | np.ndarray) -> np.ndarray:
    """a - b, sample by sample. Raises ValueError unless both have as many."""
    first, second = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if first.shape != second.shape:
        raise ValueError(f"paired values must match one to one, got {len(first)} and {len(second)}")
    return first - second
