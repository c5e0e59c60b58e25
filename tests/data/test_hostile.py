"""10,000 hostile variants of tables and MEDS files: none raises anything but BadInput, none loses a row unsaid.

Most are of one table of events, read by its own reader beside the sound stays, the others of whole folders. The
seeds are fixed, and another block of them is another 10,000: HOSTILE_SEED=1 pytest tests/data/test_hostile.py. `make
test` takes one block in four, `make nightly` the others.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers import eicu, eicu_stays, mimic, mimic3, mimic4, tables
from ghar.data.readers.meds import read_meds
from ghar.data.readers.mimic3_columns import MIMIC3
from ghar.data.readers.mimic4_columns import MIMIC4
from ghar.errors import BadInput
from tests.data import conftest, eicu_tables, hostile_meds, test_mimic3
from tests.data.hostile import Victim, account, attack

pytestmark = pytest.mark.slow

SEED = int(os.environ.get("HOSTILE_SEED", "0"))
TABLES, FOLDERS, MEDS, BLOCK = 8_000, 500, 1_500, 500  # variants, together 10,000, so many a test
NUMBERS = ("subject_id", "hadm_id", "itemid", "valuenum", "patientunitstayid", "hospital_expire_flag", "icd_version")
TIMES = ("admittime", "dischtime", "deathtime", "charttime", "storetime", "starttime", "startdate", "intime", "outtime")
VITALS = ("temperature", "sao2", "heartrate", "respiration", "systemicsystolic", "systemicdiastolic", "systemicmean")
TYPED = frozenset(
    (*NUMBERS, *TIMES, *VITALS, "noninvasivesystolic", "noninvasivediastolic", "noninvasivemean", "labresult")
)


def blocks(variants: int) -> list[Any]:
    marked = [() if block % 4 == 0 else pytest.mark.nightly for block in range(variants // BLOCK)]
    return [pytest.param(block, marks=marks) for block, marks in enumerate(marked)]


@pytest.fixture(scope="module")
def victims(tmp_path_factory: pytest.TempPathFactory) -> list[Victim]:
    """The tables of events of three sources, each beside sound stays."""
    root = tmp_path_factory.mktemp("victims")
    found = [*of_mimic4(root / "4"), *of_mimic3(root / "3"), *of_eicu(root / "e")]
    for victim in found:
        victim.learn()
    return found


def of_mimic4(root: Path) -> Iterator[Victim]:
    charts = ["1,90,2150-01-01 11:00:00,2150-01-01 11:30:00,220045,80,80"]
    small = {**conftest.ROWS, "icu/chartevents": charts}
    conftest.write_mimic4(root, small)
    patients, _ = mimic.read_patients(root, MIMIC4, "hosp/patients")
    visits, _ = mimic.read_visits(root, MIMIC4, "hosp/admissions", patients)
    titles = [mimic4.read_titles(root, name) for name in ("diagnoses_icd", "procedures_icd")]
    for name, read in mimic4.event_tables(root, visits, patients, titles, root, charts=True).items():
        if name in small and name != "hosp/patients":
            yield victim(root / f"{name}.csv", conftest.HEADERS[name], small[name], read)
    yield victim(
        root / "hosp/admissions.csv",
        conftest.HEADERS["hosp/admissions"],
        small["hosp/admissions"],
        lambda: mimic.read_visits(root, MIMIC4, "hosp/admissions", patients),
    )


def of_mimic3(root: Path) -> Iterator[Victim]:
    test_mimic3.write(root)
    patients, _ = mimic.read_patients(root, MIMIC3, "patients")
    visits, _ = mimic.read_visits(root, MIMIC3, "admissions", patients)
    titles = mimic3.read_titles(root)
    for name, read in mimic3.event_tables(root, visits, patients, titles, root, charts=True).items():
        if name != "patients":
            upper = name.upper()
            yield victim(root / f"{upper}.csv", test_mimic3.HEADERS[upper], test_mimic3.ROWS[upper], read)


def of_eicu(root: Path) -> Iterator[Victim]:
    eicu_tables.write(root)
    stays, _ = eicu_stays.read_stays(root)
    readers: dict[str, Callable[[], Any]] = {"diagnosis": lambda: eicu.read_diagnoses(root, stays)[::2]}
    for name, read in eicu.event_tables(charts=True).items():
        readers[name] = lambda read=read: read(root, stays, root)
    files = {path.stem.lower(): path for path in root.iterdir()}
    cells = {"vitalperiodic": 7, "vitalaperiodic": 3}
    for name, read in readers.items():
        header, rows = (each[files[name].stem] for each in (eicu_tables.HEADERS, eicu_tables.ROWS))
        yield victim(files[name], header, rows, read, cells.get(name, 1))


def victim(path: Path, header: str, rows: list[str], read: Callable[[], Any], cells: int = 1) -> Victim:
    def seen():
        events, counts = read()
        return events.lazy().collect(), counts

    return Victim(path.stem.lower(), path, header, rows, seen, TYPED, cells)


@pytest.mark.parametrize("block", blocks(TABLES))
def test_variants_of_tables(victims: list[Victim], block: int) -> None:
    ended, rng = Counter[str](), random.Random(f"tables {SEED} {block}")
    for i in range(BLOCK):
        ended[attack(victims[i % len(victims)], rng)] += 1
    assert ended["read"] > 0.2 * BLOCK and ended["refused"] > 0.1 * BLOCK, ended


def test_the_account_notices_lines_lost_unsaid(victims: list[Victim], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_joined", lambda table, lines, rows: {})
    rng = random.Random("lost")
    with pytest.raises(AssertionError, match=r"lines, \d+ rows, 0 joined|events of sound rows are gone"):
        for i in range(TABLES):
            attack(victims[i % len(victims)], rng)


# What a folder's tables become: code prefixes, for the account of a whole cohort.
PREFIXES = {
    "diagnoses_icd": ("ICD9CM/", "ICD10CM/"),
    "procedures_icd": ("ICD9PROC/", "ICD10PCS/"),
    "prescriptions": ("DRUG/",),
    "labevents": ("LAB/",),
}


SOURCES = {  # how a folder is written, its tables, the one of stays, its reader
    "mimic4": (conftest.write_mimic4, conftest.HEADERS, conftest.ROWS, "hosp/admissions", mimic4.read_mimic4),
    "mimic3": (test_mimic3.write, test_mimic3.HEADERS, test_mimic3.ROWS, "ADMISSIONS", mimic3.read_mimic3),
    "eicu": (eicu_tables.write, eicu_tables.HEADERS, eicu_tables.ROWS, "patient", eicu.read_eicu),
}


@pytest.mark.parametrize("name", SOURCES)
def test_variants_of_whole_folders(tmp_path: Path, name: str) -> None:
    rng, ended = random.Random(f"folders {SEED} {name}"), Counter[str]()
    write, headers, rows, stays, read = SOURCES[name]
    root, each = write(tmp_path / name), FOLDERS // len(SOURCES) + 1

    def seen():
        cohort = read(root)
        whole(cohort)
        return cohort.visits.select(pl.col("visit_id", "start")), cohort.counts

    names = [stays, stays, *(other for other in rows if other in headers)]
    found = [Victim(Path(n).name.lower(), root / f"{n}.csv", headers[n], rows[n], seen) for n in names]
    for i in range(each):
        ended[attack(found[i % len(found)], rng, alone=False)] += 1
    assert ended["read"] > 0.2 * each and ended["refused"] > 0.1 * each, ended


def whole(cohort: Cohort) -> None:
    """Rows in = rows kept + rows counted, table by table, whichever of them was broken."""
    counts, codes = cohort.counts, cohort.events["code"]
    accounts = PREFIXES | ({"admissions": ()} if cohort.stay == "hospital" else {"patient": (), "lab": ("LAB/",)})
    for name, prefixes in accounts.items():
        kept = cohort.visits.height if not prefixes else sum(codes.str.starts_with(prefix).sum() for prefix in prefixes)
        if f"rows.{name}" in counts:
            assert counts[f"rows.{name}"] == kept + account(counts, name, "dropped"), f"{name}: {dict(counts)}"


@pytest.mark.parametrize("block", blocks(MEDS))
def test_variants_of_meds_folders(tmp_path: Path, block: int) -> None:
    rng, ended = random.Random(f"meds {SEED} {block}"), Counter[str]()
    sound = hostile_meds.events_of_others()
    for _ in range(BLOCK):
        folder = hostile_meds.Folder(sound, rng)
        folder.write(tmp_path / "meds")
        try:
            cohort = read_meds(tmp_path / "meds")
        except BadInput as error:
            assert len(str(error)) > 20
            ended["refused"] += 1
            continue
        folder.check(cohort)
        ended["read"] += 1
    assert ended["read"] > 0.2 * BLOCK and ended["refused"] > 0.1 * BLOCK, ended
