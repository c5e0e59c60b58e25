"""MIMIC-IV-Note's file: what is kept, what is counted, what is refused; and the demo world's generated one."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.note_events import read_noteevents
from ghar.data.readers.notes import read_notes
from ghar.data.sections import split_sections
from ghar.envs.exprag.discharge_items import diagnoses, instructions, medications
from ghar.envs.worlds.severity.notes import write_notes
from ghar.envs.worlds.severity.world import generate_world
from ghar.errors import BadInput
from tests.data.event_rows import rows_of

HEADER = "note_id,subject_id,hadm_id,note_type,note_seq,charttime,storetime,text"


def write(root: Path, *rows: str, header: str = HEADER) -> Path:
    (root / "note").mkdir(parents=True)
    text = "\n".join([header, *rows]) + "\n"
    (root / "note" / "discharge.csv.gz").write_bytes(gzip.compress(text.encode()))
    return root


def test_the_last_summary_of_a_stay_counts(tmp_path: Path) -> None:
    rows = [
        '1-DS-2,1,20,DS,2,2150-01-02 00:00:00,2150-01-02 10:00:00,"Discharge Diagnosis:\nnew, with a ""quote"""',
        '1-DS-1,1,20,DS,1,2150-01-02 00:00:00,,"Discharge Diagnosis:\nold"',
        "1-AD-3,1,20,AD,3,2150-01-02 00:00:00,,addendum",
        "1-DS-4,1,,DS,4,2150-01-02 00:00:00,,nowhere",
        "2-DS-1,2,10,DS,1,2150-03-04 00:00:00,,short",
    ]
    notes = read_notes(write(tmp_path / "n", *rows), tmp_path / "cache")
    assert notes.visit_id.tolist() == [10, 20] and not notes.generated
    assert notes.text(20).endswith('new, with a "quote"') and notes.row(15) is None
    counted = {name.rpartition(".")[2]: n for name, n in notes.counts.items()}
    # two records go over several lines, as summaries do; the reader counts them
    assert counted == {"discharge": 5, "lines": 2, "no_stay": 1, "no_summary": 1, "earlier_summary": 1}
    with pytest.raises(KeyError):
        notes.text(15)


def test_stored_time_else_chart_time(tmp_path: Path) -> None:
    rows = ["a,1,20,DS,1,1970-01-02 00:00:00,1970-01-02 00:00:01,Discharge Diagnosis: x", "b,2,10,DS,1,1970-01-03,,y"]
    notes = read_notes(write(tmp_path / "n", *rows), tmp_path / "cache")
    day = 86_400 * 10**6
    assert notes.available.tolist() == [2 * day, day + 10**6]


def test_summaries_of_mimic3(tmp_path: Path) -> None:
    """NOTEEVENTS: dates alone, addenda and errors left out, other notes no summaries."""
    rows = [
        '1,1,20,1970-01-02,,,Discharge summary,Report,,,"Discharge Diagnosis:\nold"',
        '2,1,20,1970-01-03,,,Discharge summary,Report,,,"Discharge Diagnosis:\nnew"',
        "3,1,20,1970-01-04,,,Discharge summary,Addendum,,,more",
        "4,2,30,1970-01-03,,,Discharge summary,Report,,1,Discharge Diagnosis: wrong",
        "5,2,30,1970-01-03,1970-01-03 10:00:00,,Radiology,CHEST,,,clear",
        "6,2,,1970-01-03,,,Discharge summary,Report,,,Discharge Diagnosis: nowhere",
    ]
    header = "row_id,subject_id,hadm_id,chartdate,charttime,storetime,category,description,cgid,iserror,text"
    (tmp_path / "NOTEEVENTS.csv").write_text("\n".join([header, *rows]) + "\n")
    notes = read_notes(tmp_path, tmp_path / "cache")
    assert notes.visit_id.tolist() == [20] and notes.text(20).endswith("new") and notes.credentialed
    assert notes.available.tolist() == [3 * 86_400 * 10**6 - 10**6]  # the last second of 3 January
    counted = {name.rpartition(".")[2]: n for name, n in notes.counts.items() if name.startswith("dropped")}
    assert counted == {"no_summary": 1, "no_stay": 1, "addendum": 1, "error": 1, "earlier_summary": 1}


def test_radiology_as_events(tmp_path: Path, write_tables: Callable[..., Path]) -> None:
    """MIMIC-IV-Note's true header; a report is known when stored, and stands in one line."""
    root = write_tables(tmp_path)
    write(root, "x,1,90,DS,1,2150-01-04,,summary")
    rows = [
        '1-RR-1,1,90,RR,1,2150-01-02 08:00:00,2150-01-02 10:00:00,"EXAMINATION:  CHEST\n\nclear, ""no"" change"',
        "1-AR-2,1,90,AR,2,2150-01-02 09:00:00,,addendum",
        "1-RR-3,1,,RR,3,2150-01-08 09:00:00,2150-01-08 08:00:00,of no stay",
        "1-RR-4,1,77,RR,4,2150-01-08 09:00:00,,of an unknown stay",
        "5-RR-5,5,,RR,5,2150-01-08 09:00:00,,of an unknown patient",
        "1-DS-6,1,90,DS,6,2150-01-04 09:00:00,,a summary",
        "1-RR-7,1,90,RR,7,,,no time",
        "1-RR-8,1,90,RR,8,2150-01-02 09:00:00,,  ",
    ]
    (root / "note/radiology.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    cohort = read_mimic4(root, more=["notes"])
    found = cohort.events.filter(pl.col("code").str.starts_with("NOTE/"))
    assert found.select("code", "time", "recorded", "text_value", "visit_id").rows() == [
        (
            "NOTE/Radiology",
            datetime(2150, 1, 2, 8),
            datetime(2150, 1, 2, 10),
            'EXAMINATION: CHEST clear, "no" change',
            90,
        ),
        ("NOTE/Radiology addendum", datetime(2150, 1, 2, 9), datetime(2150, 1, 2, 9), "addendum", 90),
        ("NOTE/Radiology", datetime(2150, 1, 8, 9), datetime(2150, 1, 8, 9), "of no stay", None),
    ]
    dropped = {name.rpartition(".")[2]: n for name, n in cohort.counts.items() if name.startswith("dropped.radiology")}
    assert dropped == dict.fromkeys(
        ("unknown_admission", "unknown_patient", "discharge_summary", "no_time", "no_text"), 1
    )
    assert cohort.counts["rows.radiology"] == 8 and cohort.names()["NOTE/Radiology"] == "Radiology"
    assert rows_of(found[:1], cohort.names().__getitem__) == [
        '[2150-01-02 08:00:00] note - Radiology (value: EXAMINATION: CHEST clear, "no" change)'
    ]
    (root / "note/radiology.csv").unlink()
    with pytest.raises(BadInput, match="has no table note/radiology"):
        read_mimic4(root, more=["notes"])


def test_notes_of_mimic3_as_events(tmp_path: Path) -> None:
    """A date alone is known at the end of its day; no discharge summary of any stay is ever shown."""
    rows = [
        "1,1,20,2150-01-02,2150-01-02 08:00:00,2150-01-02 08:30:00,Nursing/other,Report,,,stable",
        "2,1,20,2150-01-02,,,ECG,Report,,,sinus rhythm",
        "3,1,20,2150-01-04,,,Discharge summary,Report,,,went home",
        "4,1,20,2150-01-03,2150-01-03 10:00:00,2150-01-03 11:00:00,Physician ,Progress,,1,wrong",
    ]
    header = "row_id,subject_id,hadm_id,chartdate,charttime,storetime,category,description,cgid,iserror,text"
    (tmp_path / "NOTEEVENTS.csv").write_text("\n".join([header, *rows]) + "\n")
    times = {"start": [datetime(2150, 1, 1)], "end": [datetime(2150, 1, 5)]}
    visits = pl.DataFrame({"subject_id": [1], "visit_id": [20], **times}).with_columns(
        pl.col("start", "end").cast(pl.Datetime("us"))
    )
    events, counts = read_noteevents(tmp_path, visits, visits.select("subject_id"), tmp_path)
    assert events.collect().select("code", "time", "recorded", "text_value").rows() == [
        ("NOTE/Nursing/other", datetime(2150, 1, 2, 8), datetime(2150, 1, 2, 8, 30), "stable"),
        ("NOTE/ECG", datetime(2150, 1, 2), datetime(2150, 1, 2, 23, 59, 59), "sinus rhythm"),
    ]
    assert counts["dropped.noteevents.discharge_summary"] == counts["dropped.noteevents.error"] == 1


@pytest.mark.parametrize("rows, header, said", [
    (["x,1,20,DS,1,2150-01-02,,no heading here"], HEADER, "none of the first 1 reports has a section"),
    (["x,1,20,DS,1"], "note_id,subject_id,hadm_id,note_type,note_seq", "no column charttime, storetime, text"),
    (["x,1,twenty,DS,1,2150-01-02,,t"], HEADER, "row 1 below the header, column hadm_id: 'twenty'"),
    (["x,1,20,RR,1,2150-01-02,,t"], HEADER, "holds no discharge summary"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused(tmp_path: Path, rows: list[str], header: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_notes(write(tmp_path / "n", *rows, header=header), tmp_path / "cache")
    assert not list((tmp_path / "cache").glob("notes-*"))


def test_a_folder_without_summaries_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no note/discharge\.csv\.gz: set system\.notes"):
        read_notes(tmp_path, tmp_path / "cache")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("worlds") / "world"
    generate_world(root, seed=3, patients=40)
    return root


def digest(root: Path) -> dict[str, str]:
    return {str(p.relative_to(root)): hashlib.sha256(p.read_bytes()).hexdigest()
            for p in sorted(root.rglob("*")) if p.is_file()}  # fmt: skip


def test_generated_summaries_leave_the_world_as_it_is_and_repeat(world: Path, tmp_path: Path) -> None:
    before = digest(world)
    write_notes(world, tmp_path / "one")
    write_notes(world, tmp_path / "two")
    write_notes(world, tmp_path / "two")  # finished: kept
    assert digest(world) == before and digest(tmp_path / "one") == digest(tmp_path / "two")
    assert sorted(digest(tmp_path / "one")) == [
        "manifest.json", "note/discharge.csv.gz", "note/discharge_detail.csv.gz", "phenotypes.parquet",
        "sealed.json",
    ]  # fmt: skip
    with pytest.raises(BadInput, match="something else"):
        write_notes(world, tmp_path)


def test_every_stay_has_a_summary_that_says_it_is_generated(world: Path, tmp_path: Path) -> None:
    write_notes(world, tmp_path / "notes")
    notes = read_notes(tmp_path / "notes", tmp_path / "cache")
    stays = pl.read_csv(world / "hosp/admissions.csv.gz", try_parse_dates=True)
    assert notes.generated and sorted(stays["hadm_id"]) == notes.visit_id.tolist()
    end = dict(stays.select("hadm_id", pl.col("dischtime").cast(pl.Datetime("us")).to_physical()).iter_rows())
    listed = 0
    for stay, available, text in zip(notes.visit_id.tolist(), notes.available.tolist(), notes.texts, strict=True):
        cut = split_sections(text)
        assert text.startswith("GENERATED SUMMARY") and available > end[stay]
        listed += bool(diagnoses(cut)) + bool(medications(cut))
        assert len(instructions(cut)) >= 2
    assert listed > 1.5 * len(notes)
