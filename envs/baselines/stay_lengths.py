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
        """Leave out the own stays of a task unless most of its outcomes come after these end.

        Those of length of stay do not. An outcome without a time, as in a label file, counts as there at the end.
        """
        later = [self._ends_before(sample) for sample in train if sample.visit_id in self.ends]
        return replace(self, own=2 * sum(later) > len(later))

    def _ends_before(self, sample: Sample) -> bool:
        return sample.outcome_time is not None and self.ends[sample.visit_id] < sample.outcome_time


def read_lengths(visits: pl.DataFrame) -> StayLengths:
    """Lengths of `Cohort.visits`."""
    over = visits.select("visit_id", "end").drop_nulls()
    return StayLengths(dict(over.iter_rows()))
