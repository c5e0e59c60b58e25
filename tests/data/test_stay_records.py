"""Records of hospital stays, for cohorts whose hospital stays have no order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data import stay_records as module
from ghar.data.cohort import Cohort
from ghar.data.ranges import subject_ranges
from ghar.data.readers.eicu import read_eicu
from ghar.data.stay_records import WITHOUT_STAY, stay_records
from tests.data.eicu_tables import write
from tests.data.small import HOUR, START, small_cohort

# visit -> its patient and its hospital stay
PLACES = {1: (1, 20), 2: (1, 20), 3: (1, 10), 4: (2, 5), 5: (3, 7), 6: (3, 6)}
EVENTS = st.lists(st.tuples(st.sampled_from([*PLACES, None]), st.integers(-3, 3) | st.none()), max_size=25)


def grouped(events: list[tuple[int | None, int | None]], stranger: bool = False) -> Cohort:
    visits = [(subject, visit, START, START + HOUR, None) for visit, (subject, _) in PLACES.items()]
    rows = [
        (PLACES[visit or 1][0], visit, f"C/{i}", None if hour is None else START + hour * HOUR)
        for i, (visit, hour) in enumerate(events)
    ]
    made = small_cohort(visits, [*rows, *([(9, None, "C/99", None)] if stranger else [])])
    group = [PLACES[visit][1] for visit in made.visits["visit_id"]]
    return replace(made, visits=made.visits.with_columns(group=pl.Series(group)).sort("subject_id", "group", "start"))


@given(EVENTS)
def test_each_stay_has_its_own_events_and_its_patients_facts(events: list[tuple[int | None, int | None]]) -> None:
    cohort = grouped(events)
    records = stay_records(cohort, Path("unused"))
    stays = sorted(set(PLACES.values()))
    assert {visit: stays[records.record(0, visit)] for visit in PLACES} == PLACES
    for number, (subject, group) in enumerate(stays):
        own = [visit for visit, place in PLACES.items() if place == (subject, group)]
        rows = cohort.events.filter(pl.col("subject_id") == subject).rows(named=True)
        expected = [row["code"] for row in rows if row["time"] is None]
        expected += [row["code"] for row in rows if row["time"] is not None and row["visit_id"] in own]
        found = records.cohort.events.filter(pl.col("subject_id") == number)
        assert found["code"].to_list() == expected
        assert records.cohort.visits.filter(pl.col("subject_id") == number)["visit_id"].to_list() == own
    stray = sum(visit is None and hour is not None for visit, hour in events)
    assert records.cohort.counts.get(WITHOUT_STAY, 0) == stray
    assert records.cohort.events.columns == cohort.events.columns and "group" not in records.cohort.visits.columns


def test_a_patient_without_a_visit_has_no_record() -> None:
    records = stay_records(grouped([(1, 0)], stranger=True), Path("unused"))
    assert records.cohort.events["code"].to_list() == ["C/0"]


def test_a_cohort_with_one_order_stays_as_it_is() -> None:
    cohort = small_cohort([(1, 2, START, START + HOUR, None)])
    records = stay_records(cohort, Path("unused"))
    assert records.cohort is cohort and records.record(1, 2) == 1


def test_a_cohort_from_the_cache_is_written_beside_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Range by range of patients, one of two patients here: numbers of records go through all ranges."""
    monkeypatch.setattr(module, "subject_ranges", lambda events: subject_ranges(events, size=3))
    cohort = read_eicu(write(tmp_path / "eicu"), tmp_path / "cache", charts=True)
    first, in_memory = stay_records(cohort, tmp_path / "cache"), stay_records(replace(cohort), tmp_path)
    assert first.cohort.key != cohort.key and first.record_of_visit == in_memory.record_of_visit
    assert first.cohort.events.equals(in_memory.cohort.events) and first.cohort.events["subject_id"].n_unique() == 3
    assert first.cohort.visits.equals(in_memory.cohort.visits)
    about = ("name", "generated", "credentialed", "stay", "counts")
    assert all(getattr(first.cohort, name) == getattr(cohort, name) for name in about)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("events-*")}
    assert stay_records(cohort, tmp_path / "cache").cohort.key == first.cohort.key
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("events-*")} == files
    # ICU stays 7 and 3 of one hospital stay share a record, 5 of another one of this patient has its own
    assert first.record_of_visit is not None
    assert first.record_of_visit[7] == first.record_of_visit[3] != first.record_of_visit[5]
