"""Every kind of bad data the readers must live with, on each of them: repaired by a named, counted rule, or refused.

What only one reader knows (ages, units, orders) is tested with that reader.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import pytest

from ghar.data.codes import ICD, CodeSystems, map_codes
from ghar.data.cohort import Cohort
from ghar.data.mapping import drug_keys, mapping_report
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.mimic4 import read_mimic4
from ghar.errors import BadInput
from tests.data import conftest, eicu_tables, test_mimic3


@dataclass(frozen=True)
class Source:
    """A reader, and the names of its tables of stays, diagnoses and drugs."""

    read: Callable[[Path], Cohort]
    write: Callable[..., Path]
    rows: Mapping[str, list[str]]
    stays: str
    diagnoses: str
    drugs: str


SOURCES = {
    "mimic3": Source(read_mimic3, test_mimic3.write, test_mimic3.ROWS, "ADMISSIONS", "DIAGNOSES_ICD", "PRESCRIPTIONS"),
    "mimic4": Source(
        read_mimic4,
        conftest.write_mimic4,
        conftest.ROWS,
        "hosp/admissions",
        "hosp/diagnoses_icd",
        "hosp/prescriptions",
    ),
    "eicu": Source(read_eicu, eicu_tables.write, eicu_tables.ROWS, "patient", "diagnosis", "medication"),
}


@pytest.fixture(params=SOURCES)
def source(request) -> Source:
    return SOURCES[request.param]


def same(one: Cohort, other: Cohort) -> bool:
    frames = ("events", "codes", "visits")
    return all(getattr(one, f).equals(getattr(other, f)) for f in frames) and one.counts == other.counts


def counted(cohort: Cohort, rule: str) -> int:
    return sum(n for name, n in cohort.counts.items() if name.endswith(f".{rule}"))


def test_discharge_before_admission_is_unknown(source, tmp_path):
    first = source.rows[source.stays][0]
    later = {"2150-01-04 09:00:00": "2149-12-31 09:00:00", ",500,Expired": ",-500,Expired"}
    wrong = first
    for good, bad in later.items():
        wrong = wrong.replace(good, bad)
    assert wrong != first
    cohort = source.read(source.write(tmp_path, {source.stays: [wrong, *source.rows[source.stays][1:]]}))
    assert counted(cohort, "discharge_before_admission") == 1 and cohort.visits["end"].null_count() == 1


def test_missing_times(source, tmp_path):
    rows = {
        "ADMISSIONS": ["1,1,90,,2150-01-04,,0", "2,1,20,2150-01-10,,,0"],
        "hosp/admissions": ["1,90,,2150-01-04,,0", "1,20,2150-01-10,,,0"],
        "patient": ["3,50,Female,60,,,,,Alive,MICU,1,,Alive,002-1039,,,"],
    }
    drugs = {
        "PRESCRIPTIONS": ["1,1,20,,,Aspirin"],
        "hosp/prescriptions": ["1,20,,,Aspirin"],
        "medication": ["1,3,,10,No,Aspirin", "2,3,,,No,Aspirin"],
    }
    wanted = {
        "ADMISSIONS": "no_discharge_time",
        "hosp/admissions": "no_discharge_time",
        "patient": "no_discharge_offset",
    }
    tables = {source.stays: rows[source.stays], source.drugs: drugs[source.drugs]}
    cohort = source.read(source.write(tmp_path, tables))
    assert cohort.visits.height == 1 and cohort.visits["end"].null_count() == 1
    assert counted(cohort, wanted[source.stays]) == 1
    known = cohort.events.filter(pl.col("code") == "DRUG/aspirin")
    assert known["recorded"].null_count() == known["time"].null_count() == 0 and known.height == 1
    rules = ("no_start", "no_startdate", "no_starttime", "no_order_time")
    assert sum(counted(cohort, rule) for rule in rules) == 1


def test_repeated_rows(source, tmp_path):
    """Stays and diagnoses: dropped and counted. A drug or a value twice may be two doses or two tubes: it stays."""
    stays, diagnoses = source.rows[source.stays], source.rows[source.diagnoses]
    plain = source.read(source.write(tmp_path / "plain"))
    twice = {source.stays: [*stays, stays[0]], source.diagnoses: [*diagnoses, diagnoses[0]]}
    cohort = source.read(source.write(tmp_path / "twice", twice))
    assert counted(cohort, "repeated") - counted(plain, "repeated") == 2
    assert cohort.events.equals(plain.events) and cohort.visits.equals(plain.visits)


def test_blanks_around_codes(source, tmp_path):
    diagnoses = source.rows[source.diagnoses]
    swapped = [row.replace("4280", "4280  ").replace("584.9,", " 584.9 ,") for row in diagnoses]
    assert swapped != diagnoses
    plain = source.read(source.write(tmp_path / "plain"))
    assert same(source.read(source.write(tmp_path / "blanks", {source.diagnoses: swapped})), plain)


@pytest.mark.parametrize("damage", ["half", "no end", "empty"])
def test_gz_files_cut_short(source, tmp_path, damage):
    path = source.write(tmp_path) / f"{source.drugs}.csv"
    packed = gzip.compress(path.read_bytes())
    path.unlink()
    part = {"half": packed[: len(packed) // 2], "no end": packed[:-4], "empty": b""}[damage]
    path.with_suffix(".csv.gz").write_bytes(part)
    with pytest.raises(BadInput, match=rf"{path.stem}\.csv\.gz"):
        source.read(tmp_path)


def test_an_absent_table(source, tmp_path):
    (source.write(tmp_path) / f"{source.drugs}.csv").unlink()
    with pytest.raises(BadInput, match=f"no table {source.drugs.lower()}"):
        source.read(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("change", ["crlf", "bom", "columns", "case"])
def test_line_ends_marks_columns_and_case(source, tmp_path, change):
    """CRLF, a byte order mark, unknown columns in another order, other letter case: the same cohort."""
    plain = source.read(source.write(tmp_path / "plain"))
    for path in source.write(tmp_path / change).rglob("*.csv"):
        if change == "columns":
            frame = pl.read_csv(path, infer_schema=False)
            frame = frame.select(reversed(frame.columns)).with_columns(order_provider_id=pl.lit("P0"))
            frame.insert_column(0, pl.Series("poe_seq", ["7"] * frame.height)).write_csv(path)
        elif change == "case":
            header, _, rest = path.read_text().partition("\n")
            path.unlink()
            path.with_name(path.name.upper()).write_text(f"{header.upper()}\n{rest}")
        else:
            raw = path.read_bytes()
            path.write_bytes(raw.replace(b"\n", b"\r\n") if change == "crlf" else b"\xef\xbb\xbf" + raw)
    read = source.read(tmp_path / change)
    counts = {name: n for name, n in read.counts.items() if not name.startswith("undecided.")}
    assert (counts == read.counts) == (change != "columns")  # columns without an owner are counted
    assert same(replace(read, counts=counts), plain)


def test_a_cell_of_the_wrong_type_is_refused_with_its_row(source, tmp_path):
    bad = {"ADMISSIONS": "9,x,90,,,,0", "hosp/admissions": "x,90,,,,0", "patient": "x,50,,,,,,,,,,,,002-1,,,"}
    rows = [*source.rows[source.stays], bad[source.stays]]
    with pytest.raises(BadInput, match=rf"row {len(rows)} below the header, column \w+: 'x' is not a whole number"):
        source.read(source.write(tmp_path, {source.stays: rows}))


@pytest.mark.slow
def test_icd_versions_mixed_in_one_table(tmp_path):
    """The version is in the row (MIMIC-IV) or in the shape of the code (eICU); MIMIC-III has ICD-9 only."""
    four = read_mimic4(
        conftest.write_mimic4(tmp_path / "4", {"hosp/diagnoses_icd": ["1,90,1,E8000,9", "1,90,2,E8000,10"]})
    )
    assert {"ICD9CM/E8000", "ICD10CM/E8000"} <= set(four.codes["code"])
    eicu = read_eicu(eicu_tables.write(tmp_path / "e"))
    assert {"ICD9CM/5849", "ICD10CM/N179"} <= set(eicu.codes["code"])
    unknown = read_mimic4(conftest.write_mimic4(tmp_path / "u", {"hosp/diagnoses_icd": ["1,90,1,E8000,11"]}))
    assert unknown.counts["dropped.diagnoses_icd.unknown_version"] == 1


def test_lost_leading_zeros(tmp_path):
    """MIMIC-III puts them back from its dictionary; elsewhere the mapping to CCS does, under the rule leading_zero."""
    rows = {"DIAGNOSES_ICD": ["1,1,90,1,90"]}
    cohort = read_mimic3(test_mimic3.write(tmp_path, rows))
    assert cohort.counts["repaired.diagnoses_icd.leading_zeros_lost"] == 1
    tables = {name: {} for name in ICD} | {"ICD9CM": {"0090": "CCSCM/135"}}
    systems = CodeSystems(tables, {"name": {}, "gsn": {}, "ndc": {}}, {})
    assert map_codes(["ICD9CM/90"], systems).rows() == [("ICD9CM/90", "CCSCM/135", "leading_zero")]


@pytest.mark.slow
def test_ndc_0_is_no_code(demo, mimic4_cohort):
    """2,610 of 18,087 prescriptions have NDC "0", 21 none; without bags and solutions 729 and 21 of 14,410.
    The cohort keeps names; the mapping counts these."""
    keys = drug_keys(demo)
    raw = pl.read_csv(demo / "hosp/prescriptions.csv.gz", infer_schema=False)
    raw = raw.filter(pl.col("drug_type") != "BASE")["ndc"]
    assert keys.filter(pl.col("ndc") == "0")["rows"].sum() == (raw == "0").sum() == 729
    assert keys.filter(pl.col("ndc").is_null())["rows"].sum() == raw.null_count() == 21
    cohort = mimic4_cohort
    systems = CodeSystems({name: {} for name in ICD}, {"name": {}, "gsn": {}, "ndc": {}}, {})
    report = mapping_report(cohort, map_codes(cohort.codes["code"], systems, keys), keys)
    assert report.keys["prescriptions"] == keys["rows"].sum() == 14410
    assert report.keys["prescriptions.no_ndc"] == 729 + 21 and "prescriptions.no_ndc: 750" in report.text()
