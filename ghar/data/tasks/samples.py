"""Samples of the tasks that show time series (GraphWalker)."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

import numpy as np


@dataclass(frozen=True, eq=False)
class TimeSeriesSample:
    """One prediction from a table of T steps by F features.

    hours: [T], end of each step in hours since the admission. features: F codes. values: float32 [T, F], the last value
    of the step, else the last one before it (LOCF); NaN before the first. source: int64 [T, F], the row of
    `Cohort.events` a value is from, -1 for none. observed: bool [T, F], whether it was measured in that step.
    outcome_time: when the outcome is known at the latest. credentialed: as in `ghar.data.cohort.Sample`.
    """

    sample_id: str
    subject_id: int
    visit_id: int
    prediction_time: datetime
    label: int
    features: tuple[str, ...]
    hours: np.ndarray
    values: np.ndarray
    source: np.ndarray
    observed: np.ndarray
    outcome_time: datetime | None = None
    credentialed: bool = field(default=True, kw_only=True, compare=False, repr=False)
