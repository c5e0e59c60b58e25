"""Cohorts of a few visits and events, written down by a test."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import polars as pl

from ghar.data.cohort import Cohort

US = pl.Datetime("us")
START = datetime(2150, 1, 1, 12)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EVENTS = {
    "subject_id": pl.Int64,
    "visit_id": pl.Int64,
    "code": pl.String,
    "time": US,
    "recorded": US,
    "numeric_value": pl.Float32,
    "text_value": pl.String,
}
VISITS = {
    "subject_id": pl.Int64,
    "visit_id": pl.Int64,
    "start": US,
    "end": US,
    "died": pl.Boolean,
    "death_time": US,
}


def small_cohort(visits, events=(), parents=None, **columns) -> Cohort:
    """visits: (subject, visit, start, end, death time or None); events: (subject, visit, code, time, *rest) with rest:
    recorded (default: the time), number, text; parents: code -> its parents."""
    stays = [(s, v, start, end, death is not None, death) for s, v, start, end, death in visits]
    rows = [(*e, *((e[3], None, None)[len(e) - 4 :])) for e in events]
    frame = pl.DataFrame(rows, EVENTS, orient="row").with_columns(**{k: pl.Series(v) for k, v in columns.items()})
    frame = frame.sort("subject_id", "time", maintain_order=True)
    names = sorted({*frame["code"], *(parents or {})})
    codes = pl.DataFrame({"code": names, "description": names}, {"code": pl.String, "description": pl.String})
    above = pl.Series("parents", [(parents or {}).get(name, []) for name in names], dtype=pl.List(pl.String))
    about = pl.DataFrame(stays, VISITS, orient="row").sort("subject_id", "start")
    return Cohort("small cohort", frame, codes.with_columns(above), about)


def balance(samples) -> dict[int, int]:
    return dict(sorted(Counter(sample.label for sample in samples).items()))
