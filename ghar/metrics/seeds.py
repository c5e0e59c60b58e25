"""Means and differences over several training seeds, with intervals that cover seeds and patients.

Patients are drawn once for all seeds, because the seeds are mostly evaluated on the same patients, whose luck does not
average out over seeds (Owen 2007). Where seeds have patients of their own the shared draw leaves the variance as it
would be with a draw for each. Seeds are too few to be drawn: their part is Student's t with S - 1 degrees of freedom,
scaled by the variance between seeds less what the patients' luck makes of it, and added to the patients' part resample
by resample (variances recovered and added: Zou and Donner 2008). One seed alone says nothing about seeds: its interval
covers patients only. `python benchmarks/run.py coverage` counts how often these intervals hold the truth.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from ghar.metrics.bootstrap import RESAMPLES, Interval, differences, patient_codes, patient_weights, ratio
from ghar.metrics.significance import p_of

Values = Sequence[Sequence[float] | np.ndarray]
Number = Callable[[np.ndarray], np.ndarray]  # weights [r, n] of one seed's samples -> [r], NaN where undefined


@dataclass(frozen=True, eq=False)
class SeedDraws:
    """A number over seeds. value: its mean; of_patients: the same on each draw of patients [resamples], NaN where
    undefined; scale: of Student's t with seeds - 1 degrees of freedom, how far other seeds may lead; seed: of the order
    in which its quantiles are added."""

    value: float
    of_patients: np.ndarray
    scale: float
    seeds: int
    patients: int
    seed: int

    @property
    def drawn(self) -> np.ndarray:
        """Draws of patients and seeds [resamples]."""
        return self.of_patients + _seed_draws(self.scale, self.seeds, len(self.of_patients), self.seed)

    def p(self) -> float:
        """Two-sided p of no difference: twice the smaller share of draws at or beyond 0, of seeds by t itself.

        Where no draw of patients is there, 1,000 draws do not tell how rare one would be: then Student's t of the
        value over the draws' spread, with patients - 1 degrees of freedom, says it. Signs of n patients that are as
        likely as not all agree in 2^(1 - n), and p is never below.
        """
        from scipy.stats import t as student  # a second to import

        values = self.of_patients[~np.isnan(self.of_patients)]
        values = np.where(np.abs(values) < 1e-12, 0.0, values)
        least = min(1.0, 2.0 ** (1 - self.patients))
        p = p_of(values)
        if self.scale > 0:
            at = values / self.scale
            p = 2 * min(float(side(at, self.seeds - 1).mean()) for side in (student.cdf, student.sf))
        if not ((values > 0).all() or (values < 0).all()):
            return min(1.0, max(p, least))
        spread = float(values.std())
        far = np.inf if spread == 0 else abs(self.value) / spread
        tail = 2 * float(student.sf(far, max(1, self.patients - 1)))
        return min(1.0, max(tail if self.scale == 0 else p, tail, least))


def seeds_and_patients(
    values: Values, patients: Sequence[Sequence[Hashable]], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """Mean over seeds of each seed's mean; its interval keeps to the range of the values.

    values: for each seed one finite number a sample; patients: for each seed the patient of each sample. A name in
    two seeds is one patient. Raises ValueError without seeds, for a seed without values and for unequal lengths.
    """
    interval = _interval(values, patients, seed, resamples)
    least, most = min(map(np.min, values)), max(map(np.max, values))
    return Interval(interval.value, max(interval.low, float(least)), min(interval.high, float(most)))


def seeds_and_patients_difference(
    a: Values, b: Values, patients: Sequence[Sequence[Hashable]], *, seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """As `seeds_and_patients`, of a - b: seed i of both on the same samples in the same order, drawn together.

    Raises ValueError as well where a and b have not the same seeds and samples.
    """
    if len(a) != len(b):
        raise ValueError(f"paired seeds must match one to one, got {len(a)} and {len(b)}")
    apart = [differences(one, two) for one, two in zip(a, b, strict=True)]
    return _interval(apart, patients, seed, resamples)


def _interval(values: Values, patients: Sequence[Sequence[Hashable]], seed: int, resamples: int) -> Interval:
    table = _checked(values, patients)
    value, drawn = drawn_over_seeds([_mean_of(column) for column in table], patients, seed=seed, resamples=resamples)
    low, high = np.nanpercentile(drawn, [2.5, 97.5])
    return Interval(value, float(low), float(high))


def drawn_over_seeds(
    numbers: Sequence[Number],
    patients: Sequence[Sequence[Hashable]],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[float, np.ndarray]:
    """Mean over seeds of any number of each seed's samples, and the same on each resample [resamples].

    numbers: one a seed, a function of weights of its samples. A seed whose number is undefined on a resample is left
    out of that, which is NaN where none is left.
    """
    draws = draw_over_seeds(numbers, patients, seed=seed, resamples=resamples)
    return draws.value, draws.drawn


def draw_over_seeds(
    numbers: Sequence[Number],
    patients: Sequence[Sequence[Hashable]],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> SeedDraws:
    """As `drawn_over_seeds`, patients and seeds apart."""
    everyone = [patient for column in patients for patient in column]
    sizes = [len(column) for column in patients]
    every, count = patient_codes(len(everyone), everyone)
    codes = np.split(every, np.cumsum(sizes)[:-1])
    blocks = [
        np.stack([of(weights[:, own]) for of, own in zip(numbers, codes, strict=True)], axis=1)
        for weights in patient_weights(count, resamples, seed, width=max(count, *sizes))
    ]
    each = np.array([of(np.ones((1, n)))[0] for of, n in zip(numbers, sizes, strict=True)])
    draws = np.concatenate(blocks)  # [resamples, seeds]
    is_valid = ~np.isnan(draws)
    together = ratio(np.nan_to_num(draws).sum(axis=1), is_valid.sum(axis=1))
    scale = _seed_scale(each, draws - together[:, None])
    return SeedDraws(float(np.mean(each)), together, scale, len(numbers), count, seed)


def between_seeds(each: np.ndarray, apart: np.ndarray, seed: int) -> np.ndarray:
    """[resamples]: how far the mean of S drawn seeds may lie from that of all seeds there could be.

    each: [S], a number a seed; apart: [resamples, S], how far each seed is from the mean of all on each draw of
    patients, whose variance is the part of the seeds' that patients make. Quantiles of t, in an order drawn from
    `seed`.
    """
    return _seed_draws(_seed_scale(each, apart), len(each), len(apart), seed)


def _seed_scale(each: np.ndarray, apart: np.ndarray) -> float:
    """Of t; 0 for one seed, of which nothing is known."""
    seeds = len(each)
    if seeds == 1 or np.isnan(each).any():
        return 0.0
    is_valid = ~np.isnan(apart)
    centred = np.nan_to_num(apart - ratio(np.nansum(apart, axis=0), is_valid.sum(axis=0)))
    of_patients = np.nansum(ratio((centred**2).sum(axis=0), is_valid.sum(axis=0))) / (seeds - 1)
    return float(np.sqrt(max(float(np.var(each, ddof=1) - of_patients), 0.0) / seeds))


def _seed_draws(scale: float, seeds: int, resamples: int, seed: int) -> np.ndarray:
    """Quantiles of t times its scale, in an order drawn from `seed`."""
    if scale == 0:
        return np.zeros(resamples)
    from scipy.stats import t as student

    quantiles = student.ppf((np.arange(resamples) + 0.5) / resamples, seeds - 1)
    return scale * np.random.default_rng([seed, 1]).permutation(quantiles)


def _checked(values: Values, patients: Sequence[Sequence[Hashable]]) -> list[np.ndarray]:
    table = [np.asarray(column, dtype=float) for column in values]
    if not table or any(not column.size or not np.isfinite(column).all() for column in table):
        raise ValueError("a mean over seeds needs at least one seed, and finite values of each")
    if [len(column) for column in table] != [len(column) for column in patients]:
        raise ValueError("the seeds' values and patients must match one to one: give the patient of each value")
    return table


def _mean_of(values: np.ndarray) -> Number:
    """Mean [r] of one seed's values; NaN where none of its patients was drawn."""
    return lambda weights: ratio(weights @ values, weights.sum(axis=1))
