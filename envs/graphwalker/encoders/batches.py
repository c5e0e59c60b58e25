"""Time series of different lengths as tensors, standardised by what the training samples say.

A value enters where it was measured. The last value before the first step shown counts as measured in that step:
`ghar.data.tasks.series` has carried it there. What LOCF copied into later steps is in `filled` alone, which the models
that were published on filled-in tables read (ConCare, AdaCare); SMART, whose pre-training hides values, must not see
copies of what it hides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ghar.data.cohort import Sample
from ghar.data.tasks.samples import TimeSeries
from ghar.errors import BadInput

LIMIT = 10.0  # standardised values are cut there: one typing error must not decide


@dataclass(frozen=True, eq=False)
class FeatureScale:
    """Features in order, and float64 [F] mean and standard deviation of their measured values in training samples.

    static_mean, static_deviation: float64 [S], of the static numbers; S is 0 where samples have none.
    """

    features: tuple[str, ...]
    mean: np.ndarray
    deviation: np.ndarray
    static_mean: np.ndarray
    static_deviation: np.ndarray

    @property
    def static_width(self) -> int:
        """Columns of `SeriesBatch.static`."""
        return 2 * len(self.static_mean)


@dataclass(frozen=True, eq=False)
class SeriesBatch:
    """b samples of at most T steps, shorter ones padded at the end.

    values: float32 [b, T, F], 0 where not measured; observed: bool [b, T, F], whether measured. filled: float32
    [b, T, F], the last value up to that step, 0 (the training mean) before the first. hours: float32 [b, T]. real:
    bool [b, T], whether a step is none of the padding. labels: int64 [b]. static: float32 [b, 2S], the static numbers,
    0 (the training mean) where not known, and whether each is known.
    """

    values: Tensor
    observed: Tensor
    filled: Tensor
    hours: Tensor
    real: Tensor
    labels: Tensor
    static: Tensor

    def to(self, device: torch.device) -> SeriesBatch:
        """The same on another device."""
        return SeriesBatch(*(getattr(self, one.name).to(device) for one in fields(self)))

    @property
    def last(self) -> Tensor:
        """Index [b] of the last real step."""
        return self.real.sum(1) - 1


class Output(NamedTuple):
    """What a predictor says of b samples: embedding [b, d], logits [b, classes], and a term of its training loss."""

    embedding: Tensor
    logits: Tensor
    penalty: Tensor | float = 0.0


def fit_scale(samples: Sequence[Sample[TimeSeries]]) -> FeatureScale:
    """Mean and deviation by feature; a feature that was never measured, or never varied, gets 0 or 1 for it."""
    features = samples[0].history.features
    observed = np.concatenate([observation_mask(sample, features) for sample in samples])
    moments = _moments(np.concatenate([sample.history.values for sample in samples]), observed)
    static = _static_of(samples, len(samples[0].history.static))
    return FeatureScale(features, *moments, *_moments(static, ~np.isnan(static)))


def _moments(values: np.ndarray, observed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and deviation of each column's known values, 0 or 1 where there is none."""
    values = np.where(observed, values, 0).astype(np.float64)
    count = np.maximum(observed.sum(0), 1)
    mean = values.sum(0) / count
    deviation = np.sqrt((observed * (values - mean) ** 2).sum(0) / count)
    return mean, np.where(deviation > 1e-6, deviation, 1.0)


def _static_of(samples: Sequence[Sample[TimeSeries]], width: int) -> np.ndarray:
    """float64 [b, S]. BadInput for a sample with another number of static values."""
    for sample in samples:
        if (own := len(sample.history.static)) != width:
            raise BadInput(
                f"Sample {sample.sample_id} has {own} static values, and its encoder was trained on {width}: "
                "system.demographics must be as it was in that training."
            )
    return np.array([sample.history.static for sample in samples], np.float64).reshape(len(samples), width)


def observation_mask(sample: Sample[TimeSeries], features: tuple[str, ...]) -> np.ndarray:
    """bool [T, F]: measured in the step, or carried into the first one.

    Raises BadInput for other features than the encoder's, for infinity, and for NaN that is said to be measured.
    """
    if sample.history.features != features:
        raise BadInput(f"Sample {sample.sample_id} has other features than the encoder: encode it with the same list.")
    if not len(sample.history.hours):
        raise BadInput(f"Sample {sample.sample_id} has no time step: leave it out.")
    wrong = np.isinf(sample.history.values) | (sample.history.observed & np.isnan(sample.history.values))
    if wrong.any():
        step, feature = np.argwhere(wrong)[0]
        raise BadInput(
            f"Sample {sample.sample_id} says that {features[feature]} was measured in step {step}, but its value is "
            f"{sample.history.values[step, feature]}: correct the value, or mark it as not observed."
        )
    observed = sample.history.observed.copy()
    observed[0] |= ~np.isnan(sample.history.values[0])
    return observed


def make_batch(samples: Sequence[Sample[TimeSeries]], scale: FeatureScale) -> SeriesBatch:
    """Samples as tensors. Raises BadInput as `observation_mask`."""
    steps, width = max(len(sample.history.hours) for sample in samples), len(scale.features)
    shape = (len(samples), steps, width)
    values, filled = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    observed, real = np.zeros(shape, bool), np.zeros(shape[:2], bool)
    hours = np.zeros(shape[:2], np.float32)
    for i, sample in enumerate(samples):
        own = slice(len(sample.history.hours))
        observed[i, own] = observation_mask(sample, scale.features)
        standard = np.clip((sample.history.values - scale.mean) / scale.deviation, -LIMIT, LIMIT)
        filled[i, own] = np.nan_to_num(standard)  # NaN is a feature before its first value; 0 is the training mean
        values[i] = np.where(observed[i], filled[i], 0)
        hours[i, own], real[i, own] = sample.history.hours, True
    labels = torch.tensor([sample.label for sample in samples])
    raw = _static_of(samples, len(scale.static_mean))
    standard = np.clip((raw - scale.static_mean) / scale.static_deviation, -LIMIT, LIMIT)
    static = np.concatenate([np.nan_to_num(standard), ~np.isnan(raw)], axis=1).astype(np.float32)
    of = torch.from_numpy
    return SeriesBatch(of(values), of(observed), of(filled), of(hours), of(real), labels, of(static))
