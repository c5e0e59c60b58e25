"""A report for every stay: its summary where there is one, else a record of its codes in words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.notes import NEVER, Notes, read_notes
from ghar.data.sections import split_sections
from ghar.data.views.reports import PLAIN, stay_reports
from ghar.envs.exprag.report_build import index_reports
from ghar.envs.exprag.report_texts import text_scores
from ghar.envs.worlds.severity.notes import write_notes
from ghar.envs.worlds.severity.world import generate_world
from ghar.storage import Strings
from tests.data.small import DAY, HOUR, START, small_cohort

VISITS = [
    (2, 7, START, START + 3 * DAY + HOUR, START + 3 * DAY),
    (1, 9, START, None, None),
    (1, 4, START - DAY, START - HOUR, None),
]
EVENTS = [
    (2, 7, "ICD9CM/1", START + 3 * DAY + HOUR),
    (2, 7, "DRUG/a", START, START + 4 * DAY),
    (2, 7, "ICD9PROC/1", START + DAY),
    (1, 9, "DRUG/b", START),
]
WORDS = {"ICD9CM/1": "sepsis", "DRUG/a": "heparin", "ICD9PROC/1": "dialysis", "DRUG/b": "senna"}


def micros(time) -> int:
    return pl.Series([time], dtype=pl.Datetime("us")).to_physical().item()


def summary_of(stay: int, text: str, at: int = 5) -> Notes:
    return Notes(np.array([stay]), np.array([1]), np.array([at]), Strings.of([text]), {"rows.discharge": 1}, False)


def test_a_stay_without_a_summary_is_told_by_its_codes() -> None:
    reports = stay_reports(small_cohort(VISITS, EVENTS), name_of=WORDS.__getitem__)
    assert reports.visit_id.tolist() == [4, 7, 9] and reports.subject_id.tolist() == [1, 2, 1]
    assert reports.text(7) == (
        f"{PLAIN}\nLength of stay: 3 days. The patient died in this stay.\n\n"
        "Major Surgical or Invasive Procedure:\ndialysis.\n\n"
        "Brief Hospital Course:\nMedications given: heparin.\n\n"
        "Discharge Diagnosis:\nsepsis."
    )
    assert [section.heading for section in split_sections(reports.text(7))] == [
        "head", "major surgical or invasive procedure", "brief hospital course", "discharge diagnosis"
    ]  # fmt: skip
    assert reports.text(4) == f"{PLAIN}\nLength of stay: less than one day.\n\nNothing else is recorded."
    assert "Length of stay: not known." in reports.text(9) and "senna" in reports.text(9)


def test_a_record_is_there_when_all_of_it_is_known() -> None:
    reports = stay_reports(small_cohort(VISITS, EVENTS))
    assert reports.available.tolist() == [micros(START - HOUR), micros(START + 4 * DAY), NEVER]
    empty = stay_reports(small_cohort(VISITS[:1]))
    assert empty.available.tolist() == [micros(START + 3 * DAY + HOUR)] and len(list(empty.texts)) == 1


def test_a_summary_is_taken_where_there_is_one() -> None:
    cohort = small_cohort(VISITS, EVENTS)
    reports = stay_reports(cohort, summary_of(4, "Discharge Diagnosis:\nflu"))
    assert reports.text(4).endswith("flu") and reports.available[0] == 5 and reports.text(7).startswith(PLAIN)
    assert reports.counts == {"rows.discharge": 1, "plain_records": 2} and not reports.generated
    assert 7 in reports and 5 not in reports and len(reports) == 3
    assert list(reports.texts) == reports.texts[:] == [reports.text(stay) for stay in (4, 7, 9)]
    stranger = stay_reports(cohort, summary_of(5, "of a stay that is not in the tables"))
    assert 5 not in stranger and stranger.counts["plain_records"] == 3
    nothing = Notes(*(np.zeros(0, np.int64) for _ in range(3)), Strings.of([]), {}, False)
    assert stay_reports(cohort, nothing).available.tolist() == stay_reports(cohort).available.tolist()
    with pytest.raises(KeyError):
        reports.text(5)


def test_a_text_is_made_only_when_it_is_asked_for() -> None:
    def name_of(code: str) -> str:
        raise AssertionError(code)

    assert len(stay_reports(small_cohort(VISITS, EVENTS), name_of=name_of)) == 3


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> tuple[Cohort, Notes, Path]:
    root = tmp_path_factory.mktemp("reports")
    generate_world(root / "world", seed=2, patients=20)
    write_notes(root / "world", root / "notes")
    return read_mimic4(root / "world", root / "cache", charts=False), read_notes(root / "notes", root / "cache"), root


@pytest.mark.parametrize("told", [True, False])
def test_reports_stand_in_for_notes(world: tuple[Cohort, Notes, Path], told: bool) -> None:
    """They can be indexed and searched as they are."""
    cohort, notes, root = world
    reports = stay_reports(cohort, notes if told else None)
    index = index_reports(cohort, reports, None, root / "indexes")
    assert sorted(index.visit_id.tolist()) == cohort.visits["visit_id"].sort().to_list() == reports.visit_id.tolist()
    assert reports.generated and (reports.counts["plain_records"] == 0) == told
    stay = int(index.visit_id[3])
    assert reports.text(stay).startswith(PLAIN) != told and (reports.text(stay) == notes.text(stay)) == told
    assert int(np.argmax(text_scores(index, reports, None)(reports.text(stay)))) == 3
    assert (reports.available < NEVER).all()
