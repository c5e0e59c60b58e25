"""Forms of a table that people have: how numbers and times are written, where the files lie, what cannot be true."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.mimic4 import read_mimic4
from ghar.errors import BadInput
from tests.data import eicu_tables
from tests.data.conftest import ROWS, write_mimic4
from tests.data.test_bad_input import SOURCES, counted, same


def rewritten(root: Path, name: str, change: Callable[[str], str]) -> Path:
    """The small tables, one of them with `change` made to its lines below the header."""
    path = write_mimic4(root) / f"{name}.csv"
    header, *lines = path.read_text().splitlines()
    path.write_text("\n".join([header, *map(change, lines)]) + "\n")
    return root


def quoted(line: str) -> str:
    return ",".join(f'"{cell}"' for cell in line.split(","))


def decimals(line: str) -> str:
    subject, stay, rest = line.split(",", 2)
    return f"{subject}.0,{stay}.0,{rest}"


FORMS = {
    "quoted times": ("hosp/admissions", quoted),
    "quoted numbers": ("hosp/labevents", quoted),
    "quoted words": ("hosp/prescriptions", quoted),
    "ids as decimals": ("hosp/diagnoses_icd", decimals),
    "ISO times": ("hosp/admissions", lambda line: line.replace(" ", "T")),
    "fractions of seconds": ("hosp/admissions", lambda line: line.replace(":00,", ":00.000,")),
    "ISO times with fractions": ("hosp/labevents", lambda line: line.replace(" ", "T").replace(":00,", ":00.000000,")),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_other_ways_to_write_a_cell(tmp_path: Path, form: str) -> None:
    table, change = FORMS[form]
    assert any(change(line) != line for line in ROWS[table])
    plain = read_mimic4(write_mimic4(tmp_path / "plain"))
    assert same(read_mimic4(rewritten(tmp_path / "other", table, change)), plain)


@pytest.mark.parametrize("cell", ["22.5", "1e3", "x", "2.0.0"])
def test_what_is_no_whole_number_is_still_refused(tmp_path: Path, cell: str) -> None:
    rows = {"hosp/diagnoses_icd": [*ROWS["hosp/diagnoses_icd"], f"1,{cell},2,I509,10"]}
    with pytest.raises(BadInput, match=rf"row 5 below the header, column hadm_id: '{cell}' is not a whole number"):
        read_mimic4(write_mimic4(tmp_path, rows))


@pytest.mark.parametrize("cell", ["2150-01-01T25:00:00", "01/02/2150", "2150-01-01 10"])
def test_what_is_no_time_is_still_refused(tmp_path: Path, cell: str) -> None:
    rows = {"hosp/admissions": [f"1,90,{cell},2150-01-04 09:00:00,,0"]}
    with pytest.raises(BadInput, match=f"row 1 below the header, column admittime: '{cell}' is not a date"):
        read_mimic4(write_mimic4(tmp_path, rows))


@pytest.mark.parametrize("source", SOURCES)
def test_a_table_in_two_forms_is_refused(tmp_path: Path, source: str) -> None:
    about = SOURCES[source]
    path = about.write(tmp_path) / f"{about.drugs}.csv"
    pl.read_csv(path, infer_schema=False).write_parquet(path.with_suffix(".parquet"))
    with pytest.raises(BadInput, match=rf"more than once, as {path.name} and {path.stem}\.parquet: keep one"):
        about.read(tmp_path)


def test_a_table_packed_as_zst_is_read(tmp_path: Path) -> None:
    plain = read_mimic4(write_mimic4(tmp_path / "plain"))
    path = write_mimic4(tmp_path / "packed") / "hosp/labevents.csv"
    path.with_suffix(".csv.zst").write_bytes(pa.compress(path.read_bytes(), codec="zstd", asbytes=True))
    path.unlink()
    assert same(read_mimic4(tmp_path / "packed"), plain)


def test_a_folder_in_capitals_is_found(tmp_path: Path) -> None:
    plain = read_mimic4(write_mimic4(tmp_path / "plain"))
    upper = write_mimic4(tmp_path / "upper")
    (upper / "hosp").rename(upper / "HOSP")
    assert same(read_mimic4(upper), plain)


@pytest.mark.parametrize("given, right", [("a/3.1/hosp", "a/3.1"), ("a", "a/3.1"), (".", "a/3.1"), ("b", None)])
def test_a_root_that_is_off_names_the_right_one(tmp_path: Path, given: str, right: str | None) -> None:
    write_mimic4(tmp_path / "a" / "3.1")
    (tmp_path / "b").mkdir()
    mend = f"set data.root to {tmp_path / right}" if right else r"point data\.root .* contains it \(it is empty\)"
    with pytest.raises(BadInput, match=rf"no table hosp/patients .*: {mend}\.$"):
        read_mimic4(tmp_path / given)


def test_dates_that_cannot_be_are_unknown_and_counted(tmp_path: Path) -> None:
    rows = {
        "hosp/admissions": ["1,90,2150-01-01 10:00:00,9999-12-31 00:00:00,,0", "1,20,1600-01-10 08:00:00,,,0"],
        "hosp/prescriptions": ["1,90,2501-01-01 00:00:00,,Aspirin", "1,90,2500-12-31 00:00:00,,Senna"],
    }
    cohort = read_mimic4(write_mimic4(tmp_path, rows))
    assert cohort.visits["visit_id"].to_list() == [90] and cohort.visits["end"].to_list() == [None]
    assert cohort.counts["repaired.admissions.date_out_of_range"] == 1  # of the rows that are kept
    assert cohort.counts["dropped.admissions.no_admission_time"] == 1
    assert cohort.counts["repaired.prescriptions.date_out_of_range"] == 1
    assert cohort.counts["repaired.prescriptions.no_starttime"] == 1
    assert cohort.events["time"].dt.year().max() == 2500


@pytest.mark.parametrize("word", ["NaN", "inf", "-inf"])
def test_values_that_are_no_number_are_counted(tmp_path: Path, word: str) -> None:
    rows = {"hosp/labevents": [f"1,1,90,50912,2150-01-01 11:00:00,2150-01-01 14:00:00,{word},{word}"]}
    cohort = read_mimic4(write_mimic4(tmp_path / "4", rows))
    lab = cohort.events.filter(pl.col("code") == "LAB/50912")
    assert lab.select("numeric_value", "text_value").rows() == [(None, word)]
    assert cohort.counts["repaired.labevents.not_finite"] == 1
    eicu = read_eicu(eicu_tables.write(tmp_path / "e", {"lab": [f"1,3,30,BUN,{word},{word},50"]}))
    assert counted(eicu, "not_finite") == 1


@pytest.mark.parametrize("name", ["[ward] 1", "a*", "?"])
def test_a_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    """Polars takes such names for patterns unless glob=False; a neighbour that fits the pattern must not be read."""
    (tmp_path / "ab").mkdir()
    write_mimic4(tmp_path / "ab")
    named, plain = (read_mimic4(write_mimic4(tmp_path / folder)) for folder in (name, "plain"))
    assert named.counts == plain.counts and named.scan().collect().equals(plain.scan().collect())
