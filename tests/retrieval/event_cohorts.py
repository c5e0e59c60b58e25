"""Cohorts of drawn events, and what may be shown of them by a direct reading."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import polars as pl
from hypothesis import strategies as st

from ghar.data.cohort import Cohort
from tests.data.small import DAY, START, small_cohort

CODES = ("LAB/sodium", "LAB/haemoglobin", "DRUG/heparin", "ICD10CM/I10", "VITAL/pulse", "NOTE/free")
MINUTE = timedelta(minutes=1)


@st.composite
def cohorts(draw: st.DrawFn, most: int = 40) -> Cohort:
    """Up to four patients with up to `most` events each, on a coarse clock so that times repeat."""
    events = []
    for subject in draw(st.lists(st.integers(1, 9), min_size=1, max_size=4, unique=True)):
        for _ in range(draw(st.integers(0, most))):
            at = None if draw(st.integers(0, 9)) == 0 else START + draw(st.integers(0, 12)) * DAY
            late = draw(st.integers(0, 3)) * DAY
            number = draw(st.sampled_from([None, 1.5, 2.25, float("nan"), float("inf"), -3.0]))
            text = draw(st.sampled_from([None, "", "___", "high"]))
            recorded = None if draw(st.integers(0, 11)) == 0 or at is None else at + late
            events.append((subject, None, draw(st.sampled_from(CODES)), at, recorded, number, text))
    events = sorted(events, key=lambda e: (e[0], e[3] is not None, e[3] or START))
    units = [("mmol/L", None, "")[i % 3] for i in range(len(events))]
    # units are put in before the sort of small_cohort, which is stable and finds the events in order
    return small_cohort([(1, 1, START, START + DAY, None)], events, unit=pl.Series(units, dtype=pl.String))


def known(cohort: Cohort, subject: int, before: datetime, clock: str) -> pl.DataFrame:
    """The timed events of a patient up to and including a time, in the order in which they became known."""
    when = pl.col("time") if clock == "time" else pl.max_horizontal("time", "recorded")
    rows = cohort.events.filter(pl.col("subject_id") == subject, pl.col("time").is_not_null())
    if clock == "recorded":
        rows = rows.filter(pl.col("recorded").is_not_null())
    return rows.with_columns(_clock=when).sort("_clock", maintain_order=True).filter(pl.col("_clock") <= before)


def is_number(value: float | None) -> bool:
    return value is not None and bool(np.isfinite(value))
