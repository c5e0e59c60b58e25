"""A record for each hospital stay, where hospital stays of one patient have no order (eICU, trap 7).

What came before a prediction is known within the stay alone. A system that searches a patient's events by time searches
those of one stay, in a cohort in which each stay is a patient of its own. Facts without a time are in every record.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.ranges import SubjectRange, subject_ranges
from ghar.data.readers.cache import EVENTS, load_cohort, scan_events, store_cohort
from ghar.progress import track
from ghar.seal import sound

VERSION = 1  # raise it when the same cohort would give other records
WITHOUT_STAY = "dropped.events_of_no_hospital_stay"  # in a cohort's counts


@dataclass(frozen=True, eq=False)
class StayRecords:
    """Records in which events have one order. cohort: with the number of a record for the patient's. record_of_visit:
    None where a record is a patient's."""

    cohort: Cohort
    record_of_visit: Mapping[int, int] | None = None

    def record(self, subject_id: int, visit_id: int) -> int:
        """The number of the record that has what is recorded of a visit."""
        return subject_id if self.record_of_visit is None else self.record_of_visit[visit_id]


def stay_records(cohort: Cohort, cache: Path) -> StayRecords:
    """Make the records of a cohort: its patients', or its hospital stays' where visits have groups.

    Stays are numbered from 0, by patient and group. Events that have a time and no visit belong to no stay; they are
    left out and counted. A cohort with a key is made in the folder `cache` once, others in memory.
    """
    if "group" not in cohort.visits.columns:
        return StayRecords(cohort)
    number = pl.struct("subject_id", "group").rank("dense").cast(pl.Int64) - 1
    visits = cohort.visits.with_columns(record=number)
    record_of_visit = dict(visits.select("visit_id", "record").iter_rows())
    if cohort.key is None:
        return StayRecords(_cohort_of(cohort, visits, _renumbered(cohort.scan(), visits)), record_of_visit)
    folder = cache / f"{cohort.key}-stays-{VERSION}"
    if not sound(folder):
        store_cohort(lambda work: _cohort_of(cohort, visits, _on_disk(cohort.scan(), visits, work)), folder)
    return StayRecords(load_cohort(folder), record_of_visit)


def _cohort_of(cohort: Cohort, visits: pl.DataFrame, events: pl.DataFrame | pl.LazyFrame) -> Cohort:
    """The cohort with these events, and with its visits under the numbers of their records."""
    timed = pl.col("time").is_not_null()
    before, after = (rows.filter(timed).select(pl.len()) for rows in (cohort.scan(), events.lazy()))
    left_out = before.collect(engine="streaming").item() - after.collect(engine="streaming").item()
    counts = {**cohort.counts, **({WITHOUT_STAY: left_out} if left_out else {})}
    renumbered = visits.with_columns(subject_id="record").drop("record", "group").sort("subject_id", "start")
    return replace(cohort, table=events, visits=renumbered, counts=counts)


def _on_disk(events: pl.LazyFrame, visits: pl.DataFrame, work: Path) -> pl.LazyFrame:
    """`_renumbered` range by range of patients, in files in the folder `work`."""
    ranges = subject_ranges(events) or [SubjectRange(0, 0, 0)]
    for i, some in enumerate(track(ranges, "Make a record of each hospital stay")):
        rows = _renumbered(some.of(events), some.of(visits.lazy()).collect())
        rows.write_parquet(work / EVENTS.format(i), compression="lz4")
    return scan_events(work, len(ranges))


def _renumbered(events: pl.LazyFrame, visits: pl.DataFrame) -> pl.DataFrame:
    """Events of whole patients under the numbers of their records, in order; of one time as they stood.

    visits: of these patients, each with its `record`.
    """
    of_visit = visits.lazy().select("subject_id", "visit_id", "record")
    of_patient = visits.lazy().select("subject_id", "record").unique(maintain_order=True)
    timed, columns = pl.col("time").is_not_null(), events.collect_schema().names()
    parts = [
        events.filter(~timed).join(of_patient, on="subject_id", maintain_order="left"),
        events.filter(timed).join(of_visit, on=["subject_id", "visit_id"], maintain_order="left"),
    ]
    rows = pl.concat([part.with_columns(subject_id="record").select(columns) for part in parts]).collect()
    return rows.sort("subject_id", "time", maintain_order=True)
