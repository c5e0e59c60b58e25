"""Patients in ranges, for work on events that do not fit in memory together."""

from __future__ import annotations

from typing import NamedTuple

import polars as pl

PART = 2_000_000  # events of a range, about 0.3 GB


class SubjectRange(NamedTuple):
    """Patients `first` to `last`. before: how many events those before them have."""

    first: int
    last: int
    before: int

    def of(self, rows: pl.LazyFrame) -> pl.LazyFrame:
        """The rows of these patients; of a cohort in the cache only the parts of its files that hold them are read."""
        return rows.filter(pl.col("subject_id").is_between(self.first, self.last))


def subject_ranges(events: pl.LazyFrame, size: int = PART) -> list[SubjectRange]:
    """All patients, ascending, in ranges of about `size` events; a patient is never cut."""
    sizes = events.group_by("subject_id").len().collect(engine="streaming").sort("subject_id")
    whole = pl.col("len").cast(pl.Int64)
    bounds = sizes.group_by(whole.cum_sum() // size).agg(
        pl.min("subject_id"), last=pl.max("subject_id"), events=whole.sum()
    )
    ordered = bounds.sort("subject_id").with_columns(before=pl.col("events").cum_sum() - pl.col("events"))
    return [SubjectRange(*row) for row in ordered.select("subject_id", "last", "before").iter_rows()]
