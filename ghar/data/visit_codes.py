"""The codes of each visit, by kind: what every task on visits shows. Made once per cohort (`Cohort.shown`)."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import polars as pl

from ghar.data.cohort import Cohort, Visit

if TYPE_CHECKING:
    import numpy as np

KINDS = {
    "ICD9CM": "diagnoses",
    "ICD10CM": "diagnoses",
    "ICD9PROC": "procedures",
    "ICD10PCS": "procedures",
    "DRUG": "medications",
    "CCSCM": "diagnoses",
    "CCSPROC": "procedures",
    "ATC": "medications",
    "EICU_DIAGNOSIS": "diagnoses",
    "EICU_TREATMENT": "procedures",
}
KIND_NAMES = ("diagnoses", "procedures", "medications")
NEVER = 2**63 - 1  # a fact of unknown recording time is not shown before any time


@dataclass(frozen=True, eq=False)
class VisitCodes:
    """visits: by visit_id, with all their codes. recorded: int64 microseconds, when each code was first known, those of
    all visits in one series; begins: visit_id -> where its codes begin there, kind after kind."""

    visits: Mapping[int, Visit]
    recorded: pl.Series
    begins: Mapping[int, int]

    @cached_property
    def _recorded(self) -> np.ndarray:
        return self.recorded.to_numpy()

    def until(self, visit: Visit, time: int) -> Visit:
        """The visit with the codes that were known at `time` (microseconds)."""
        end, shown = self.begins[visit.visit_id], {}
        for kind in KIND_NAMES:
            codes = getattr(visit, kind)
            begin, end = end, end + len(codes)
            known = self._recorded[begin:end] <= time
            if not known.all():
                shown[kind] = tuple(code for code, seen in zip(codes, known, strict=True) if seen)
        return replace(visit, **shown) if shown else visit


def kind_of_code() -> pl.Expr:
    """The kind of the column code: diagnoses, procedures or medications, null for any other."""
    prefix = pl.col("code").str.extract("^([^/]*)/")
    return prefix.replace_strict(KINDS, default=None, return_dtype=pl.String)


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause Python's search for cycles: while many small objects are made it walks through all of them over and over,
    a third of the time of making them."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


@without_collector()
def collect_visit_codes(cohort: Cohort) -> VisitCodes:
    """Each visit with its different codes in the source's order, by kind; a cohort from the cache has them there."""
    if cohort.stored_rows is None:
        from ghar.data.visit_rows import visit_rows  # and with it numpy, which a cohort from the cache does not need

        rows = visit_rows(cohort)
    else:
        rows = pl.read_parquet(cohort.stored_rows)
    codes = list(map(cohort.codes["code"].to_list().__getitem__, rows["code"].to_list()))
    bounds = rows["slot"].search_sorted(pl.int_range(3 * cohort.visits.height + 1, eager=True)).to_list()
    cuts = zip(bounds[0:-1:3], bounds[1::3], bounds[2::3], bounds[3::3], strict=True)
    owners = cohort.visits.select("visit_id", "start").iter_rows()
    visits, begins = {}, {}
    for (visit_id, start), (a, b, c, d) in zip(owners, cuts, strict=True):
        visits[visit_id] = Visit(visit_id, start, tuple(codes[a:b]), tuple(codes[b:c]), tuple(codes[c:d]))
        begins[visit_id] = a
    return VisitCodes(visits, rows["recorded"], begins)
