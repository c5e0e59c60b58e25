"""The codes of each visit, by kind: what every task on visits shows. Made once per cohort (`Cohort.shown`), from rows
of whole numbers that are kept in the cache (`visit_rows`)."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from operator import itemgetter
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

import polars as pl

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
    "ICDO3": "diagnoses",
    "CPT4": "procedures",
    "HCPCS": "procedures",
    "RxNorm": "medications",
    "RxNorm Extension": "medications",
    "NDC": "medications",
    "CVX": "medications",
}
KIND_NAMES = ("diagnoses", "procedures", "medications")
NEVER = 2**63 - 1  # a fact of unknown recording time is not shown before any time


@dataclass(frozen=True)
class Visit:
    """What a sample shows of one visit: code strings, in the source's order, without duplicates.

    For records of real patients at full length (`ghar.data.findings`) also who lies where, and the newest values, most
    telling first. dated: whether `start` is a date of the source. omitted: how many codes of each kind, and last how
    many values, a budget left out (`ghar.data.views.visits`).
    """

    visit_id: int
    start: datetime
    diagnoses: tuple[str, ...] = ()
    procedures: tuple[str, ...] = ()
    medications: tuple[str, ...] = ()
    about: str = ""
    values: tuple[str, ...] = ()
    dated: bool = True
    omitted: tuple[int, int, int, int] = (0, 0, 0, 0)


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
        end, changes = self.begins[visit.visit_id], {}
        for kind in KIND_NAMES:
            codes = getattr(visit, kind)
            begin, end = end, end + len(codes)
            mask = self._recorded[begin:end] <= time
            if not mask.all():
                changes[kind] = tuple(code for code, seen in zip(codes, mask, strict=True) if seen)
        return replace(visit, **changes) if changes else visit


def kinds_of(codes: pl.DataFrame) -> pl.Series:
    """The kind of each of `Cohort.codes`: diagnoses, procedures or medications, null for any other.

    What its column kind says, where the source told (SNOMED has codes of every kind); else by the vocabulary.
    """
    prefix = pl.col("code").str.extract("^([^/]*)/")
    usual = prefix.replace_strict(KINDS, default=None, return_dtype=pl.String)
    own_kind = [pl.col("kind")] if "kind" in codes.columns else []
    return codes.select(kind=pl.coalesce(*own_kind, usual))["kind"]


@contextmanager
def without_collector() -> Iterator[None]:
    """Pause Python's search for cycles: while many small objects are made it walks through all of them over and over,
    a third of the time of making them. Afterwards they count as old, or its next step would walk through them all."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running and not gc.get_freeze_count():  # what others have frozen stays frozen
            gc.freeze()
            gc.unfreeze()  # to the oldest of its generations
        if running:
            gc.enable()


Key = TypeVar("Key")
Value = TypeVar("Value")


@overload
def picked(source: Sequence[Value], keys: Sequence[int]) -> tuple[Value, ...]: ...
@overload
def picked(source: Mapping[Key, Value], keys: Sequence[Key]) -> tuple[Value, ...]: ...
def picked(source, keys):
    """What `source` has at each of `keys`, in half the time of a loop or `map`."""
    return itemgetter(*keys)(source) if len(keys) > 1 else tuple(source[key] for key in keys)


@without_collector()
def collect_visit_codes(rows: pl.DataFrame, codes: pl.DataFrame, visits: pl.DataFrame) -> VisitCodes:
    """Each visit with its different codes in the source's order, by kind.

    rows: what `visit_rows` makes of the cohort that `codes` and `visits` are of.
    """
    named = picked(codes["code"].to_list(), rows["code"].to_list())  # a slice of a tuple is a tuple
    bounds = rows["slot"].search_sorted(pl.int_range(3 * visits.height + 1, eager=True)).to_list()
    cuts = zip(bounds[0:-1:3], bounds[1::3], bounds[2::3], bounds[3::3], strict=True)
    by_id, begins = {}, {}
    for (visit_id, start), (a, b, c, d) in zip(visits.select("visit_id", "start").iter_rows(), cuts, strict=True):
        by_id[visit_id] = Visit(visit_id, start, named[a:b], named[b:c], named[c:d])
        begins[visit_id] = a
    return VisitCodes(by_id, rows["recorded"], begins)


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
