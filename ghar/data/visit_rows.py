"""The different codes of each visit as rows of whole numbers: made from the events once, and kept in the cache."""

from __future__ import annotations

from typing import Protocol

import polars as pl

from ghar.data.visit_codes import KIND_NAMES, NEVER, kinds_of


class Coded(Protocol):
    """What rows are made from: a `ghar.data.cohort.Cohort`, which is above this module."""

    @property
    def codes(self) -> pl.DataFrame: ...

    @property
    def visits(self) -> pl.DataFrame: ...

    def scan(self) -> pl.LazyFrame: ...


def visit_rows(cohort: Coded) -> pl.DataFrame:
    """A row for each different code of a visit: by visit, kind, and the place where the code stands first.

    slot: 3 * row of the visit + number of the kind in KIND_NAMES. code: row in `Cohort.codes`. recorded: when it was
    first known, in microseconds.
    """
    kinds = kinds_of(cohort.codes).cast(pl.Enum(KIND_NAMES)).to_physical().cast(pl.Int64).alias("kind").to_frame()
    coded = pl.concat([cohort.codes.select("code"), kinds], how="horizontal").with_row_index("number").lazy()
    visits = cohort.visits.lazy().select("visit_id").with_row_index("row")
    n = max(cohort.codes.height, 1)
    slot = 3 * pl.col("row").cast(pl.Int64) + pl.col("kind")
    rows = (
        cohort.scan()
        .select("visit_id", "code", "recorded")
        .filter(pl.col("visit_id").is_not_null())
        .join(coded.drop_nulls("kind"), on="code", how="inner", maintain_order="left")
        .join(visits, on="visit_id", how="inner", maintain_order="left")
        .select(key=slot * n + pl.col("number"), recorded=pl.col("recorded").to_physical().fill_null(NEVER))
        .collect(engine="streaming")
    )
    # One whole number for slot and code: grouped in a fraction of the time that text, or two columns, would take.
    first = rows.group_by("key", maintain_order=True).agg(pl.col("recorded").min())
    found = first.select(pl.col("key") // n, (pl.col("key") % n).cast(pl.UInt32).alias("code"), "recorded")
    return found.rename({"key": "slot"}).sort("slot", maintain_order=True)
