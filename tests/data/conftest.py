"""Small tables in MIMIC-IV's layout, written by the tests themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.meds import read_meds
from ghar.data.readers.meds_export import write_meds
from ghar.data.readers.mimic3 import read_mimic3
from ghar.data.readers.mimic4 import read_mimic4

HEADERS = {
    "hosp/patients": "subject_id,gender,anchor_age,anchor_year,dod",
    "hosp/admissions": "subject_id,hadm_id,admittime,dischtime,deathtime,hospital_expire_flag",
    "hosp/diagnoses_icd": "subject_id,hadm_id,seq_num,icd_code,icd_version",
    "hosp/procedures_icd": "subject_id,hadm_id,seq_num,chartdate,icd_code,icd_version",
    "hosp/prescriptions": "subject_id,hadm_id,starttime,stoptime,drug",
    "hosp/labevents": "labevent_id,subject_id,hadm_id,itemid,charttime,storetime,value,valuenum",
    "hosp/d_icd_diagnoses": "icd_code,icd_version,long_title",
    "hosp/d_icd_procedures": "icd_code,icd_version,long_title",
    "hosp/d_labitems": "itemid,label",
    "icu/icustays": "subject_id,hadm_id,stay_id,first_careunit,intime,outtime",
    "icu/chartevents": "subject_id,hadm_id,charttime,storetime,itemid,value,valuenum",  # absent unless asked for
}
# Two patients; the first was admitted twice, and hadm_id falls where time rises.
ROWS = {
    "hosp/patients": ["1,F,60,2149,", "2,M,91,2150,2150-03-04"],
    "hosp/admissions": [
        "1,90,2150-01-01 10:00:00,2150-01-04 09:00:00,,0",
        "1,20,2150-01-10 08:00:00,2150-01-10 20:00:00,,0",
        "2,30,2150-03-01 12:00:00,2150-03-04 06:00:00,2150-03-04 06:00:00,1",
    ],
    "hosp/diagnoses_icd": ["1,90,2,I509,10", "1,90,1,4280 ,9", "1,20,1,0090,9", "2,30,1,E0800,10"],
    "hosp/procedures_icd": ["1,90,1,2150-01-02,3961,9"],
    "hosp/prescriptions": [
        "1,90,2150-01-01 09:00:00,,Aspirin ",
        "1,90,2150-01-05 09:00:00,,Senna",
        "2,30,2150-03-01 13:00:00,2150-03-01 12:00:00,Heparin",
    ],
    "hosp/labevents": [
        "1,1,90,50912,2150-01-01 11:00:00,2150-01-01 14:00:00,1.1,1.1",
        "2,1,,50912,2149-12-01 11:00:00,,NEG,",
    ],
    "hosp/d_icd_diagnoses": [
        "4280,9,Congestive heart failure",
        "I509,10,Heart failure",
        "0090,9,Colitis",
        "Z00,10,Unused",
    ],
    "hosp/d_icd_procedures": ["3961,9,Extracorporeal circulation"],
    "hosp/d_labitems": ["50912,Creatinine"],
    "icu/icustays": ["1,90,7,MICU,2150-01-01 10:30:00,2150-01-03 10:00:00"],
}


def write_mimic4(root: Path, rows: dict[str, list[str]] | None = None) -> Path:
    """Write the small tables as csv, those in `rows` with other rows (without the header)."""
    for name, header in HEADERS.items():
        lines = (rows or {}).get(name, ROWS.get(name))
        if lines is not None:
            path = root / f"{name}.csv"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join([header, *lines]) + "\n")
    return root


@pytest.fixture(scope="session")
def write_tables() -> Callable[..., Path]:
    return write_mimic4


@pytest.fixture(scope="session")
def demo(shared_data: Path) -> Path:
    """The open MIMIC-IV demo, 100 real patients."""
    return shared_data / "mimic-iv-demo-2.2"


@pytest.fixture(scope="session")
def demo_admissions(demo: Path) -> pl.DataFrame:
    """Admissions of the demo in time order, read without the reader, with the start of the next admission."""
    frame = pl.read_csv(demo / "hosp/admissions.csv.gz", try_parse_dates=True)
    frame = frame.sort("subject_id", "admittime")
    return frame.with_columns(next=pl.col("admittime").shift(-1).over("subject_id"))


@pytest.fixture(scope="session")
def demo_eicu(shared_data: Path) -> Path:
    return shared_data / "eicu-crd-demo-2.0.1"


# The four sources as cohorts, each read once for all tests: frames are never changed in place.


@pytest.fixture(scope="session")
def mimic4_cohort(demo: Path) -> Cohort:
    return read_mimic4(demo)


@pytest.fixture(scope="session")
def mimic3_cohort(shared_data: Path) -> Cohort:
    return read_mimic3(shared_data / "mimic-iii-demo-1.4")


@pytest.fixture(scope="session")
def eicu_folder(demo_eicu: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The open demo, with the lab table that is there for 174 of its stays."""
    root = tmp_path_factory.mktemp("eicu")
    for path in demo_eicu.glob("*.csv.gz"):
        (root / path.name).symlink_to(path)
    (root / "lab.csv.gz").symlink_to(demo_eicu / "subset_174_stays/lab.csv.gz")
    return root


@pytest.fixture(scope="session")
def eicu_cohort(eicu_folder: Path) -> Cohort:
    return read_eicu(eicu_folder)


@pytest.fixture(scope="session")
def meds_folder(mimic4_cohort: Cohort, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The MIMIC-IV demo as a MEDS folder of four files."""
    root = tmp_path_factory.mktemp("meds") / "demo"
    write_meds(mimic4_cohort, root, shard_size=30)
    return root


@pytest.fixture(scope="session")
def meds_cohort(meds_folder: Path) -> Cohort:
    return read_meds(meds_folder)
