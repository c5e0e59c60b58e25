"""Diagnoses that stand in several codes of one name."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from pathlib import Path

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.readers.code_copies import without_second_codes
from ghar.data.readers.eicu import read_eicu
from ghar.data.views.events import event_label
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout
from tests.data.eicu_tables import write
from tests.data.small import HOUR, START, small_cohort

LABELS = {
    "ICD10CM/A419": "condition - sepsis", "ICD9CM/0389": "condition - sepsis", "ICD9CM/99591": "condition - sepsis",
    "ICD9CM/4280": "condition - heart failure", "DRUG/a": "drug - a", "DRUG/b": "drug - a",
}  # fmt: skip
ROWS = st.lists(st.tuples(st.integers(1, 2), st.sampled_from([1, 2, None]), st.sampled_from(list(LABELS)),
                          st.integers(0, 1)), max_size=20)  # fmt: skip


@given(ROWS)
def test_what_an_earlier_code_says_at_the_same_time_is_left_out(rows: list[tuple[int, int | None, str, int]]) -> None:
    cohort = small_cohort([], [(subject, visit, code, START + hour * HOUR) for subject, visit, code, hour in rows])
    events = cohort.events.with_row_index()
    expected = [
        row["index"]
        for row in events.rows(named=True)
        if row["code"].startswith("DRUG") or not any(
            other["code"] < row["code"] and LABELS[other["code"]] == LABELS[row["code"]]
            and all(other[name] == row[name] for name in ("subject_id", "visit_id", "time", "recorded"))
            for other in events.rows(named=True)
        )
    ]  # fmt: skip
    assert without_second_codes(events.lazy(), LABELS).collect()["index"].to_list() == expected


def test_a_record_of_eicu_has_each_diagnosis_once(tmp_path: Path) -> None:
    """The tables give acute renal failure as 584.9 and N17.9, twice."""
    cohort = read_eicu(write(tmp_path / "eicu"), tmp_path / "cache", charts=True)
    codes = [code for code in cohort.events["code"] if code in ("ICD9CM/5849", "ICD10CM/N179")]
    store = build_event_store(replace(cohort), tmp_path, None, StoreLayout(8, 1, False, "time"))
    subject = cohort.visits.filter(pl.col("visit_id") == 3)["subject_id"].item()
    record = store.record(subject, datetime(2020, 1, 1))
    name = cohort.names()["ICD9CM/5849"]
    lines = [line for line in record.text(range(record.rows)) if event_label("ICD9CM/5849", name) in line]
    assert len(codes) == 2 * len(lines) == 4
