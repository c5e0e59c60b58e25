"""The different codes of each visit as rows of whole numbers: made from the events once, and kept in the cache."""

from __future__ import annotations

from typing import Protocol

import polars as pl

from ghar.data.visit_codes import KIND_NAMES, NEVER, kinds_of


class CodedVisits(Protocol):
    """What rows are made from: a `ghar.data.cohort.Cohort`, which is above this module."""

    @property
    def codes(self) -> pl.DataFrame: ...

    @property
    def visits(self) -> pl.DataFrame: ...

    def scan(self) -> pl.LazyFrame: ...


def visit_rows(cohort: CodedVisits) -> pl.DataFrame:
    """A row for each different code of a visit: by visit, kind, and the place where the code stands first.

    slot: 3 * row of the visit + number of the kind in KIND_NAMES. code: row in `Cohort.codes`. recorded: when it was
    first known, in microseconds.
    """
    n = max(cohort.codes.height, 1)
    kinds = kinds_of(cohort.codes).cast(pl.Enum(KIND_NAMES)).to_physical().cast(pl.Int64)
    place = kinds * n + pl.int_range(cohort.codes.height, eager=True)  # of a code within a visit; null for other kinds
    number = pl.col("code").cast(pl.Enum(cohort.codes["code"]), strict=False).to_physical()
    visits = cohort.visits.lazy().select("visit_id", first=3 * n * pl.int_range(pl.len(), dtype=pl.Int64))
    rows = (
        cohort.scan()
        .with_row_index("at")
        .select("at", "visit_id", "recorded", place=number.map_batches(place.gather, pl.Int64, is_elementwise=True))
        .drop_nulls(["visit_id", "place"])
        .join(visits, on="visit_id", how="inner")
        # One whole number for visit, kind and code: grouped in a fraction of the time that text or columns would take.
        .group_by(key=pl.col("first") + pl.col("place"))
        .agg(pl.min("at"), pl.col("recorded").to_physical().fill_null(NEVER).min())
        .collect(engine="streaming")
    )
    slot = pl.col("key") // n
    # By slot and place, as one number again: `at` is below 2**32.
    sorted_rows = rows.sort(slot * 2**32 + pl.col("at"))
    return sorted_rows.select(slot=slot, code=(pl.col("key") % n).cast(pl.UInt32), recorded="recorded")
