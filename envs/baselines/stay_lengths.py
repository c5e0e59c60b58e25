"""How long stays lasted, of those that were over when a sample is predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

import numpy as np
import polars as pl

from ghar.data.cohort import Sample

DAY = 86_400.0  # seconds


@dataclass(frozen=True, eq=False)
class StayLengths:
    """The days that a sample's last stay lasted.

    ends: when each visit was over; unknown ends are left out. own: whether the stay that is asked about counts.
    """

    ends: Mapping[int, datetime] = field(default_factory=dict)
    own: bool = True

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        """f64[samples]: NaN where no stay was over at the prediction time."""
        return np.array([self._days(sample) for sample in samples], dtype=float)

    def _days(self, sample: Sample) -> float:
        for visit in reversed(sample.history):
            end = self.ends.get(visit.visit_id)
            counts = self.own or visit.visit_id != sample.visit_id
            if counts and end is not None and end <= sample.prediction_time:
                return (end - visit.start).total_seconds() / DAY
        return float("nan")

    def without_outcomes(self, train: Sequence[Sample]) -> StayLengths:
        """Leave out the own stays of a task whose outcomes are mostly there when these end, as length of stay is.

        An outcome without a time, as in a label file, counts as there. A stay that is not over tells nothing.
        """
        later = [
            sample.outcome_time is not None and self.ends[sample.visit_id] < sample.outcome_time
            for sample in train if sample.outcome_time is None or self._is_over(sample)
        ]  # fmt: skip
        return replace(self, own=2 * sum(later) >= len(later))

    def _is_over(self, sample: Sample) -> bool:
        end = self.ends.get(sample.visit_id)
        return end is not None and end <= sample.prediction_time


def read_lengths(visits: pl.DataFrame) -> StayLengths:
    """Lengths of `Cohort.visits`."""
    over = visits.select("visit_id", "end").drop_nulls()
    return StayLengths(dict(over.iter_rows()))
