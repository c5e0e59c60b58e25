"""Nothing of a table is lost unsaid: lines joined by quotes, codes in other forms, layouts, and what a folder is."""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.cohort import Cohort
from ghar.data.readers.damage import LineCount, first_bad_line
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.meds import read_meds
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.readers.omop import read_omop
from ghar.data.tasks.icu import icu_stays
from ghar.errors import BadInput
from tests.data import test_mimic3
from tests.data.conftest import ROWS, write_mimic4
from tests.data.test_bad_input import same

LABS = [f"{i},1,90,50912,2150-01-01 11:00:00,2150-01-01 14:00:00,1.{i},1.{i}" for i in range(8)]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("header", ['x"ylabevent_id,', '"labevent_id,'])
def test_a_stray_quote_in_the_header_of_a_column_nobody_reads(tmp_path: Path, header: str, packed: bool) -> None:
    path = write_mimic4(tmp_path, {"hosp/labevents": LABS}) / "hosp/labevents.csv"
    path.write_text(path.read_text().replace("labevent_id,", header, 1))
    if packed:
        path.with_name("labevents.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    with pytest.raises(BadInput, match=r"labevents\.csv.*: the header has a quote that is not closed in its line"):
        read_mimic4(tmp_path)


@pytest.mark.parametrize("column", [0, 6])
@pytest.mark.parametrize("place", ["start", "middle", "end"])
def test_lines_that_two_stray_quotes_join_are_counted_or_refused(tmp_path: Path, place: str, column: int) -> None:
    def broken(line: str) -> str:
        cells = line.split(",")
        cell = cells[column]
        cells[column] = {"start": f'"{cell}', "middle": f'{cell}"{cell}', "end": f'{cell}"'}[place]
        return ",".join(cells)

    rows = [broken(line) if i in (2, 5) else line for i, line in enumerate(LABS)]
    root = write_mimic4(tmp_path, {"hosp/labevents": rows})
    try:
        counts = read_mimic4(root).counts
    except BadInput as error:
        assert "line 3 below the header has a quote that is not closed in its line" in str(error)
    else:
        assert counts["rows.labevents"] + counts["joined.labevents.lines"] == len(LABS)


def test_a_line_break_inside_a_quoted_cell_is_counted_too(tmp_path: Path) -> None:
    rows = {"hosp/prescriptions": ['1,90,2150-01-01 09:00:00,,"Aspirin\n81 mg"', "1,90,2150-01-01 09:00:00,,Senna"]}
    cohort = read_mimic4(write_mimic4(tmp_path, rows))
    assert "DRUG/aspirin\n81 mg" in cohort.codes["code"].to_list()
    assert (cohort.counts["rows.prescriptions"], cohort.counts["joined.prescriptions.lines"]) == (2, 1)


@pytest.mark.parametrize("bad, said", [
    (b"1,90,2150-01-01 09:00:00,,Caf\xe9", "line 4 below the header has the byte 0xe9, which is not UTF-8"),
    (b'1,90,2150-01-01 09:00:00,,"Senna', "line 4 below the header has a quote that is not closed"),
])  # fmt: skip
def test_a_refusal_names_the_line(tmp_path: Path, bad: bytes, said: str) -> None:
    path = write_mimic4(tmp_path) / "hosp/prescriptions.csv"
    path.write_bytes(path.read_bytes() + bad + b"\n")
    with pytest.raises(BadInput, match=said):
        read_mimic4(tmp_path)


@settings(max_examples=50)
@given(st.lists(st.text("ab ,\r", max_size=6)), st.booleans(), st.booleans())
def test_lines_against_their_plain_count(tmp_path_factory, lines: list[str], packed: bool, ended: bool) -> None:
    text = "\n".join(["a,b", *lines]) + ("\n" if ended else "")
    path = tmp_path_factory.mktemp("lines") / ("x.csv.gz" if packed else "x.csv")
    path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    assert LineCount(path).wait() == len(text.split("\n")) - 1 - text.endswith("\n")


def test_a_file_without_damage_has_no_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('a,b\n1,"two, or three"\n')
    assert first_bad_line(path) is None
    path.write_text("a,b\n1,2\n1,2,3\n")
    assert first_bad_line(path) == (2, "has 3 cells, the header 2")


@pytest.mark.slow
def test_icd_codes_with_dots_in_lower_case_or_without_their_zeros(tmp_path: Path) -> None:
    rows = {"hosp/diagnoses_icd": ["1,90,2,i50.9,10", "1,90,1,428.0,9", "1,20,1,90,9", "2,30,1,E0800,10"]}
    cohort = read_mimic4(write_mimic4(tmp_path / "4", rows))
    assert same_but_counts(cohort, read_mimic4(write_mimic4(tmp_path / "plain")))
    assert cohort.counts["repaired.diagnoses_icd.code_with_dot_or_in_lower_case"] == 2
    assert cohort.counts["repaired.diagnoses_icd.leading_zeros_lost"] == 1
    rows3 = [row.replace("4280", "428.0") for row in test_mimic3.ROWS["DIAGNOSES_ICD"]]
    other = read_mimic3(test_mimic3.write(tmp_path / "3", {"DIAGNOSES_ICD": rows3}))
    assert same_but_counts(other, read_mimic3(test_mimic3.write(tmp_path / "plain3")))
    assert other.counts["repaired.diagnoses_icd.code_with_dot_or_in_lower_case"] >= 1


def same_but_counts(one, other) -> bool:
    return all(getattr(one, frame).equals(getattr(other, frame)) for frame in ("events", "codes", "visits"))


def test_hosp_alone_is_read_and_tasks_of_icu_stays_say_what_they_miss(tmp_path: Path) -> None:
    shutil.rmtree(write_mimic4(tmp_path) / "icu")
    cohort = read_mimic4(tmp_path)
    assert cohort.counts["absent.icustays"] == 1 and cohort.visits.height == 3
    with pytest.raises(BadInput, match="knows of no ICU stay"):
        icu_stays(cohort)


@pytest.mark.parametrize("layout", ["core", "flat", "upper flat"])
def test_other_layouts_of_mimic4(tmp_path: Path, layout: str) -> None:
    plain, root = read_mimic4(write_mimic4(tmp_path / "plain")), write_mimic4(tmp_path / "other")
    if layout == "core":  # version 1.0
        (root / "core").mkdir()
        for name in ("patients", "admissions"):
            (root / f"hosp/{name}.csv").rename(root / f"core/{name}.csv")
    else:
        for path in list(root.rglob("*.csv")):
            path.rename(root / (path.name.upper() if layout == "upper flat" else path.name))
    assert same(read_mimic4(root), plain)


FOLDERS = {
    "OMOP": (("person.csv", "visit_occurrence.csv", "concept.csv"), "looks like OMOP: choose data=omop"),
    "MEDS": (("data/train/0.parquet", "metadata/codes.parquet"), "looks like MEDS: choose data=meds"),
    "eICU": (("patient.csv.gz", "vitalPeriodic.csv.gz"), "looks like eICU: choose data=eicu"),
    "none": (("notes.txt", "x.csv"), r"contains it \(it has notes\.txt, x\.csv\)"),
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_a_folder_of_something_else_is_named(tmp_path: Path, kind: str) -> None:
    files, said = FOLDERS[kind]
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a,b\n")
    with pytest.raises(BadInput, match=said):
        read_mimic4(tmp_path)


def test_mimic3_read_as_mimic4_is_named(tmp_path: Path) -> None:
    test_mimic3.write(tmp_path)
    (tmp_path / "CALLOUT.csv").write_text("row_id\n")
    with pytest.raises(BadInput, match=r"has no column anchor_age.*it looks like MIMIC-III: choose data=mimic3"):
        read_mimic4(tmp_path)


MIMIC4_FILES = ("hosp/patients.csv.gz", "hosp/d_hcpcs.csv.gz", "icu/icustays.csv.gz")


@pytest.mark.parametrize("read", [read_mimic3, read_eicu, read_omop, read_meds])
@pytest.mark.parametrize(("given", "advice"), [
    ("iv", r"it looks like MIMIC-IV: choose data=mimic4\."),
    ("iv/hosp", r"it looks like MIMIC-IV: choose data=mimic4 and data\.root=.*/iv\."),
])  # fmt: skip
def test_mimic4_read_as_another_source_is_named(
    tmp_path: Path, read: Callable[[Path], Cohort], given: str, advice: str
) -> None:
    for name in MIMIC4_FILES:
        (tmp_path / "iv" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "iv" / name).write_bytes(gzip.compress(b"subject_id,anchor_age\n"))
    with pytest.raises(BadInput, match=advice):
        read(tmp_path / given)


def test_a_better_folder_is_one_of_the_same_source(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    test_mimic3.write(tmp_path / "a")
    (tmp_path / "a/CALLOUT.csv").write_text("row_id\n")
    with pytest.raises(BadInput, match=r"no table hosp/patients .*: point data\.root to the folder"):
        read_mimic4(tmp_path)
    write_mimic4(tmp_path / "b")
    with pytest.raises(BadInput, match=f"set data.root to {tmp_path / 'b'}"):
        read_mimic4(tmp_path)
    (tmp_path / "a").rename(tmp_path / "c")
    with pytest.raises(BadInput, match=f"set data.root to {tmp_path / 'c'}"):
        read_mimic3(tmp_path)


def test_rows_of_the_small_tables_are_lines(tmp_path: Path) -> None:
    cohort = read_mimic4(write_mimic4(tmp_path))
    for name in ("admissions", "diagnoses_icd", "prescriptions", "labevents"):
        assert cohort.counts[f"rows.{name}"] == len(ROWS[f"hosp/{name}"])
    assert not any(rule.startswith("joined.") for rule in cohort.counts)
    assert isinstance(cohort.events, pl.DataFrame)
