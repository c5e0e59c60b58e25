"""Small generated time series: the label shows in the level and the trend of the first feature."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np

from ghar.data.cohort import Sample
from ghar.data.tasks.samples import TimeSeries

FEATURES = tuple(f"VITAL/feature {i}" for i in range(4))


def sample(number: int, values: np.ndarray, observed: np.ndarray, label: int = 0) -> Sample[TimeSeries]:
    """`values` [T, F] where `observed`, carried forward elsewhere as `ghar.data.tasks.series` does."""
    filled, last = np.full(values.shape, np.nan, np.float32), np.full(values.shape[1], np.nan)
    for step in range(len(values)):
        last = np.where(observed[step], values[step], last)
        filled[step] = last
    hours = 24.0 * np.arange(1, len(values) + 1, dtype=np.float32)
    source = np.where(np.isnan(filled), -1, 0)
    features = FEATURES[: values.shape[1]]
    shown = TimeSeries(features, hours, filled, source, observed)
    return Sample(f"s{number}", number, number, datetime(2150, 1, 1), shown, label)


def changed(one: Sample[TimeSeries], **arrays: np.ndarray) -> Sample[TimeSeries]:
    """A sample with other arrays of its series."""
    return replace(one, history=replace(one.history, **arrays))


def draw(rng: np.random.Generator, number: int) -> Sample[TimeSeries]:
    steps, label = int(rng.integers(1, 6)), int(rng.integers(2))
    values = rng.standard_normal((steps, len(FEATURES)))
    values[:, 0] += label * (1.5 + np.linspace(0, 1, steps))
    observed = rng.random(values.shape) < 0.7
    observed[0, 0] = True
    return sample(number, values.astype(np.float32), observed, label)


def series(seed: int, n: int) -> list[Sample[TimeSeries]]:
    rng = np.random.default_rng(seed)
    return [draw(rng, i) for i in range(n)]
