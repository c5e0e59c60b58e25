"""Diagnoses that stand in several codes of one name."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.readers.diagnosis_copies import SAME, without_repeated_diagnoses
from ghar.data.readers.eicu import read_eicu
from ghar.data.views.events import event_label
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout
from tests.data.eicu_tables import write
from tests.data.small import HOUR, START, small_cohort

LABELS = {
    "ICD10CM/A419": "condition - sepsis", "ICD9CM/0389": "condition - sepsis", "ICD9CM/99591": "condition - sepsis",
    "CCSCM/2": "condition - septicemia", "EICU_TREATMENT/a": "procedure - dialysis", "DRUG/a": "drug - a",
}  # fmt: skip
CODES = [*LABELS, "ICD9CM/4280"]  # the last one has no name
ROWS = st.lists(st.tuples(st.integers(1, 2), st.sampled_from([1, None]), st.sampled_from(CODES), st.integers(0, 1),
                          st.sampled_from([None, 1.0])), max_size=20)  # fmt: skip


@given(ROWS)
def test_of_events_that_read_alike_the_first_stays(
    rows: list[tuple[int, int | None, str, int, float | None]],
) -> None:
    given_rows = [
        (subject, visit, code, START + hour * HOUR, START + hour * HOUR, number, None)
        for subject, visit, code, hour, number in rows
    ]
    events = small_cohort([], given_rows).events.with_row_index()
    kept: list[int] = []
    read: set[tuple[object, ...]] = set()
    for row in events.rows(named=True):
        line = (LABELS.get(row["code"], row["code"]), *(row[name] for name in SAME))
        if row["code"].startswith("DRUG") or line not in read:
            kept.append(row["index"])
        read.add(line)
    assert without_repeated_diagnoses(events.lazy(), LABELS).collect()["index"].to_list() == kept


def test_a_record_of_eicu_has_each_diagnosis_once(tmp_path: Path) -> None:
    """The tables give acute renal failure as 584.9 and N17.9, at two times; each first code stays."""
    cohort = read_eicu(write(tmp_path / "eicu"), tmp_path / "cache", charts=True)
    codes = [code for code in cohort.events["code"] if code in ("ICD9CM/5849", "ICD10CM/N179")]
    store = build_event_store(replace(cohort), tmp_path, None, StoreLayout(8, 1, False, "time"))
    subject = cohort.visits.filter(pl.col("visit_id") == 3)["subject_id"].item()
    record = store.record(subject, datetime(2020, 1, 1))
    name = cohort.names()["ICD9CM/5849"]
    lines = [line for line in record.text(range(record.rows)) if event_label("ICD9CM/5849", name) in line]
    assert len(codes) == 2 * len(lines) == 4
    numbers = [store.codes[int(code)] for code in record.row_codes()]
    assert numbers.count("ICD9CM/5849") == 2 and "ICD10CM/N179" not in numbers
