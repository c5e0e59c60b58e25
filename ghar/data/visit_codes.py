"""The codes of each visit, by kind: what every task on visits shows. Made once per cohort (`Cohort.shown`)."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort, Visit

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
NEVER = np.iinfo(np.int64).max  # a fact of unknown recording time is not shown before any time


@dataclass(frozen=True, eq=False)
class VisitCodes:
    """visits: by visit_id, with all their codes. recorded: int64 microseconds, when each code was first known, those of
    all visits in one array; spans: visit_id -> kind -> begin and end of its codes in `recorded`."""

    visits: Mapping[int, Visit]
    recorded: np.ndarray
    spans: Mapping[int, Mapping[str, tuple[int, int]]]

    def until(self, visit: Visit, time: int) -> Visit:
        """The visit with the codes that were known at `time` (microseconds)."""
        shown = {}
        for kind, (begin, end) in self.spans[visit.visit_id].items():
            known = self.recorded[begin:end] <= time
            if not known.all():
                shown[kind] = tuple(code for code, seen in zip(getattr(visit, kind), known, strict=True) if seen)
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
    """Each visit with its different codes in the source's order, by kind."""
    codes, row, number, recorded = _coded_events(cohort)
    # Whole numbers and stable sorts of rows that are nearly in order: a tenth of the time of grouping by text.
    key = row * max(codes.height, 1) + number
    order = np.argsort(key, kind="stable")
    key = key[order]
    begins = np.flatnonzero(np.diff(key, prepend=-1))
    first = order[begins]  # where each (visit, code) stands first
    earliest = np.minimum.reduceat(recorded[order], begins) if len(begins) else recorded
    slot = 3 * row[first] + codes["kind"].to_physical().to_numpy().astype(np.int64)[number[first]]
    by_slot = np.lexsort((first, slot))
    slot, earliest = slot[by_slot], earliest[by_slot]
    names = np.array(codes["code"].to_list(), dtype=object)[number[first[by_slot]]].tolist()
    bounds = np.searchsorted(slot, np.arange(3 * cohort.visits.height + 1)).tolist()
    visits, spans = {}, {}
    for i, (visit_id, start) in enumerate(cohort.visits.select("visit_id", "start").iter_rows()):
        cuts = bounds[3 * i : 3 * i + 4]
        mine = {kind: (cuts[k], cuts[k + 1]) for k, kind in enumerate(KIND_NAMES)}
        visits[visit_id] = Visit(visit_id, start, **{kind: tuple(names[a:b]) for kind, (a, b) in mine.items()})
        spans[visit_id] = mine
    return VisitCodes(visits, earliest, spans)


def _coded_events(cohort: Cohort) -> tuple[pl.DataFrame, np.ndarray, np.ndarray, np.ndarray]:
    """The codes with a kind, and for each event with one of them: row of its visit, row of its code, recorded."""
    events = cohort.scan().select("visit_id", "code", "recorded")
    codes = cohort.codes.lazy().select("code", kind=kind_of_code().cast(pl.Enum(KIND_NAMES))).drop_nulls().collect()
    rows = (
        events.filter(pl.col("visit_id").is_not_null())
        .join(codes.lazy().select("code").with_row_index("number"), on="code", how="inner", maintain_order="left")
        .join(cohort.visits.lazy().select("visit_id").with_row_index("row"), on="visit_id", maintain_order="left")
        .select(pl.col("row", "number").cast(pl.Int64), pl.col("recorded").to_physical().fill_null(NEVER))
        .collect(engine="streaming")
    )
    return codes, rows["row"].to_numpy(), rows["number"].to_numpy(), rows["recorded"].to_numpy()
