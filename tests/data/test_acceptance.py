"""Inputs after public bug reports, with their right values: those of shared/data/cases (GHAR_SHARED), and their twins,
which run anywhere."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import polars as pl
import pytest

from ghar.data.audit import as_plain, exposure
from ghar.data.codes import CodeSystems, map_codes, read_code_systems
from ghar.data.cohort import Cohort, Sample
from ghar.data.mapping import drug_keys
from ghar.data.readers.eicu import read_eicu
from ghar.data.readers.meds import read_meds
from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks.ehrshot import before_death, ehrshot_labels
from ghar.data.tasks.label_files import label_file_task
from ghar.data.tasks.own_labels import own_labels
from ghar.data.tasks.series import series_labels
from ghar.data.tasks.stays import make_samples
from ghar.errors import BadInput
from tests.data import acceptance
from tests.data.audit import audit
from tests.data.small import DAY, START, small_cohort
from tests.data.test_tasks_visits import data_in, task_named

ORIGINS = ["shared", "twin"]


@pytest.fixture(params=ORIGINS)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], Path]:
    """Where a case lies: the shared one, visibly skipped where it is absent, or its twin."""
    if request.param == "twin":
        return lambda name: getattr(acceptance, name)(tmp_path / name)
    shared: Path = request.getfixturevalue("shared_data")
    if not (shared / "cases").is_dir():
        pytest.skip(f"no acceptance cases at {shared / 'cases'}")
    cases = shared / "cases"
    return lambda name: cases / name if (cases / name).is_dir() else cases / f"{name}.parquet"


def values(cohort: Cohort, prefix: str = "LAB/") -> dict[str, tuple]:
    rows = cohort.events.filter(pl.col("code").str.starts_with(prefix) & (pl.col("subject_id") == 1))
    return {code: (number, text) for code, number, text in rows.select("code", "numeric_value", "text_value").rows()}


@pytest.mark.parametrize(("name", "read"), [("", read_mimic4), ("_meds", read_meds)])
def test_a_death_years_before_the_last_stay_is_counted_and_nobody_is_dead(folder, name: str, read) -> None:
    """MIT-LCP/mimic-code#1346."""
    cohort = read(folder(f"dod_years_before_stay{name}"))
    assert cohort.counts["repaired.patients.dod_before_last_stay"] == 1
    assert not cohort.visits["died"].any() and cohort.visits["death_time"].null_count() == cohort.visits.height
    assert cohort.events.filter(pl.col("code").str.starts_with("MEDS_DEATH")).is_empty()
    labels = series_labels(cohort, "readmission").filter(subject_id=1)
    assert labels["label"].to_list() == [0]  # a next stay seven years later


@pytest.mark.parametrize(("name", "read"), [("", read_mimic4), ("_meds", read_meds)])
def test_haemoglobin_in_grams_a_litre(folder, name: str, read) -> None:
    """mimic-code#1922, #2140: 118, 95 and 65 g/L are mild, moderate and severe, from tables and MEDS alike."""
    cohort = read(folder(f"haemoglobin_in_g_per_l{name}"))
    assert ehrshot_labels(cohort, "lab_anemia")[0].filter(subject_id=1)["label"].to_list() == [1, 2, 3]
    shown = cohort.events.filter(code="LAB/51222")["numeric_value"].to_list()
    assert shown == pytest.approx([11.8, 9.5, 6.5])
    assert sum(n for rule, n in cohort.counts.items() if rule.endswith("converted_unit")) == 3


def test_a_result_in_the_comments_is_shown(folder) -> None:
    """MIT-LCP/mimic-code#941."""
    cohort = read_mimic4(folder("result_in_comments"))
    assert values(cohort) == {"LAB/51652": (None, "DETECTED <1.3"), "LAB/51222": (None, "9.1")}
    assert cohort.counts["repaired.labevents.result_in_comments"] == 2
    assert "repaired.labevents.no_value" not in cohort.counts


@pytest.mark.parametrize("name", ["death_time_alone_meds", "death_time_and_dod_midnight_meds"])
def test_a_date_of_death_beside_its_time_is_the_same_death(folder, name: str) -> None:
    """MIMIC_IV_MEDS#23, OpenICU#626."""
    cohort = read_meds(folder(name))
    assert cohort.visits.filter(subject_id=1)["death_time"].to_list() == [datetime(2150, 1, 5, 5)]
    [sample] = [s for s in make_samples(cohort, "dec")[1] if s.subject_id == 1]
    assert (sample.prediction_time, sample.label) == (datetime(2150, 1, 4, 5), 1)
    assert cohort.events.filter(code="MEDS_DEATH")["time"].to_list() == [datetime(2150, 1, 5, 5)]


def test_a_result_without_a_time_is_known_at_no_time(folder) -> None:
    cohort = read_meds(folder("result_without_time_meds"))
    assert values(cohort) == {} and cohort.counts["dropped.meds.fact_without_time"] == 1
    coded = cohort.events.filter(subject_id=1, code="ICD10CM/I214").select("time", "recorded")
    assert coded.rows() == [(datetime(2150, 1, 8, 10),) * 2]
    samples = make_samples(cohort, "los", leakage="strict")[1]
    assert audit(cohort, samples).is_empty() and not any(v.diagnoses for s in samples for v in s.history[-1:])


ATC = {"aspirin": {"ATC/A01A": 3, "ATC/N02B": 2}, "oxycodone": {"ATC/N02A": 6}, "phenylephrine": {"ATC/S01G": 3}}


@pytest.mark.slow
def test_one_class_by_route_for_all_spellings_of_a_drug(folder) -> None:
    """mimic-code#1316, #490."""
    root = folder("drug_spellings")
    cohort, keys = read_mimic4(root), drug_keys(root)
    own = CodeSystems({}, {"name": ATC | {"oxycodone (immediate release)": {"ATC/N02A": 2}}, "gsn": {}, "ndc": {}}, {})
    tables = [own] if root.parent.name != "cases" else [own, read_code_systems(root.parents[1] / "codes")]
    for systems in tables:
        drugs = [code for code in cohort.codes["code"] if code.startswith("DRUG/") and "discharge" not in code]
        found = dict(map_codes(drugs, systems, keys).select("code", "target").rows())
        assert found["DRUG/*nf* aspirin"] == found["DRUG/aspirin"] == "ATC/N02B"
        assert {found[code] for code in drugs if "oxycodone" in code} == {"ATC/N02A"}


def test_a_move_between_units_is_no_return(folder) -> None:
    """MIT-LCP/eicu-code#149."""
    cohort = read_eicu(folder("eicu_move_is_no_return"))
    labels = {sample.visit_id: sample.label for sample in make_samples(cohort, "read")[1]}
    assert labels == {1: 0, 2: 0, 9: 0}
    assert series_labels(cohort, "readmission").filter(visit_id=1)["label"].to_list() == [0]


def test_offsets_of_190_years_are_dropped_or_blank_and_counted(folder) -> None:
    cohort = read_eicu(folder("eicu_offsets_of_190_years"))
    years = cohort.events["time"].drop_nulls().dt.year()
    assert years.min() == years.max() == 2014
    counted = {rule: n for rule, n in cohort.counts.items() if rule.endswith("offset_out_of_range")}
    assert counted == {
        "dropped.diagnosis.offset_out_of_range": 2,
        "dropped.medication.offset_out_of_range": 1,
        "repaired.lab.offset_out_of_range": 1,
    }
    assert cohort.counts["rows.diagnosis"] == 3


# ---- kinds of which only the twins have a case


def test_a_sound_death_after_the_discharge_is_an_event(tmp_path: Path) -> None:
    stay = ["1,100,2150-01-01 10:00:00,2150-01-08 10:00:00,,0"]
    root = acceptance.write_mimic(tmp_path, patients=["1,M,40,2150,2014 - 2016,2150-01-20"], admissions=stay)
    cohort = read_mimic4(root)
    deaths = cohort.events.filter(code="MEDS_DEATH").select("subject_id", "time", "recorded", "visit_id").rows()
    last = datetime(2150, 1, 20, 23, 59, 59)
    assert deaths == [(1, last, last, None)] and cohort.counts["added.patients.deaths_after_discharge"] == 1
    assert not cohort.visits["died"].any()
    assert series_labels(cohort, "readmission").filter(subject_id=1)["label"].to_list() == [1]


def test_bags_and_solutions_are_no_medications(tmp_path: Path) -> None:
    drugs = ["9,900,2160-01-01 12:00:00,BASE,Bag,,0,IV", "9,900,2160-01-01 12:00:00,ADDITIVE,Thiamine,,0,IV"]
    cohort = read_mimic4(acceptance.write_mimic(tmp_path, prescriptions=drugs))
    assert cohort.shown.visits[900].medications == ("DRUG/aspirin", "DRUG/thiamine")
    assert cohort.names()["DILUENT/bag"] == "bag" and cohort.counts["repaired.prescriptions.diluent"] == 1
    assert "DRUG/bag" not in drug_keys(tmp_path)["code"]


def test_a_drip_is_no_decongestant_and_a_class_may_be_missing(tmp_path: Path) -> None:
    systems = CodeSystems({}, {"name": ATC, "gsn": {}, "ndc": {"00000000042": {"ATC/C01C": 1}}}, {})
    drugs = [f"9,900,2160-01-01 12:00:00,MAIN,phenylephrine,,{ndc},IV DRIP" for ndc in ("42", "0")]
    keys = drug_keys(acceptance.write_mimic(tmp_path, prescriptions=drugs))
    assert map_codes(["DRUG/phenylephrine"], systems, keys).row(0)[1:] == ("ATC/C01C", "ndc")
    alone = keys.with_columns(ndc=pl.lit("0"))
    assert map_codes(["DRUG/phenylephrine"], systems, alone).row(0)[1:] == (None, None)
    drops = alone.with_columns(route=pl.lit("BOTH EYES"))
    assert map_codes(["DRUG/phenylephrine"], systems, drops).row(0)[1:] == ("ATC/S01G", "name")


@pytest.mark.parametrize("table", ["hosp/prescriptions", "hosp/labevents", "icu/icustays", "hosp/d_labitems"])
def test_line_ends_of_old_macs_are_refused(tmp_path: Path, table: str) -> None:
    path = acceptance.write_mimic(tmp_path) / f"{table}.csv"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r"))
    with pytest.raises(BadInput, match=r"ends its lines with CR alone, as on old Macs.*: write LF or CRLF"):
        read_mimic4(tmp_path)


def test_a_table_of_a_header_alone_is_counted(tmp_path: Path) -> None:
    root = acceptance.write_mimic(tmp_path)
    (root / "hosp" / "prescriptions.csv").write_text(acceptance.MIMIC["hosp/prescriptions"] + "\n")
    cohort = read_mimic4(root)
    assert cohort.counts["empty.prescriptions"] == 1 and "empty.labevents" not in cohort.counts


@pytest.mark.parametrize("table", ["patients", "admissions", "diagnoses_icd"])
def test_a_header_alone_is_refused_where_there_must_be_rows(tmp_path: Path, table: str) -> None:
    root = acceptance.write_mimic(tmp_path)
    (root / "hosp" / f"{table}.csv").write_text(acceptance.MIMIC[f"hosp/{table}"] + "\n")
    with pytest.raises(BadInput, match=rf"{table}.csv (lists no patient|has no admission|has a header and no row)"):
        read_mimic4(root)


@pytest.mark.parametrize("name", ["labels", "guo_los"])
def test_opposite_labels_of_one_patient_at_one_time_are_refused(folder, tmp_path: Path, name: str) -> None:
    path = folder("labels_twice_conflict")
    sentence = r"different labels of one patient at one time, 1 times \(patient 1 at 2150-01-03 10:00:00\): leave one"
    with pytest.raises(BadInput, match=sentence):
        if name == "labels":
            label_file_task(replace(task_named("labels"), labels=str(path)))
        else:
            (tmp_path / "m" / "labels").mkdir(parents=True)
            (tmp_path / "m" / "labels" / "guo_los.parquet").write_bytes(path.read_bytes())
            own_labels(data_in(tmp_path / "m"), "guo_los")


def test_equal_labels_of_one_patient_at_one_time_are_one(tmp_path: Path) -> None:
    path = acceptance.labels_twice_conflict(tmp_path)
    rows = pl.read_parquet(path)
    eight = rows[2:].with_columns(subject_id=pl.lit(8, pl.Int64), boolean_value=pl.lit(True))
    pl.concat([rows[1:], rows[1:], eight]).write_parquet(path)
    assert label_file_task(replace(task_named("labels"), labels=str(path)))[1].height == 3


def test_nothing_is_predicted_of_the_dead(tmp_path: Path) -> None:
    """Neither by EHRSHOT's rule on the evening of an in-hospital death, nor by a label file."""
    stay = ["1,100,2150-01-01 10:00:00,2150-01-08 10:00:00,2150-01-08 09:00:00,1"]
    labs = ["1,100,51222,2150-01-09 10:00:00,2150-01-09 11:00:00,9.1,9.1,g/dL,"]
    root = acceptance.write_mimic(tmp_path, patients=["1,M,40,2150,2014 - 2016,2150-01-08"], admissions=stay,
                                  labevents=labs)  # fmt: skip
    cohort = read_mimic4(root)
    for task in ("new_acutemi", "lab_anemia"):
        labels, left_out = ehrshot_labels(cohort, task)
        assert 1 not in labels["subject_id"] and left_out["after_death"] == 1
    rows = [(1, datetime(2150, 1, 7), 1), (1, datetime(2150, 1, 9), 1), (9, datetime(2170, 1, 9), 0)]
    schema = {"subject_id": pl.Int64, "prediction_time": acceptance.US, "label": pl.Int64}
    given = pl.DataFrame(rows, schema, orient="row")
    kept, dead = before_death(given, cohort)
    assert kept["prediction_time"].to_list() == [datetime(2150, 1, 7), datetime(2170, 1, 9)] and dead == 1
    [los] = [sample for sample in make_samples(cohort, "los")[1] if sample.subject_id == 1]
    assert los.prediction_time == datetime(2150, 1, 8, 9) and los.outcome_time == datetime(2150, 1, 8, 9)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["mimic4", "mimic3"])
def test_nothing_is_predicted_of_the_dead_of_the_open_demos(source: str, request: pytest.FixtureRequest) -> None:
    cohort: Cohort = request.getfixturevalue(f"{source}_cohort")
    died = dict(cohort.visits.filter("died").select("subject_id", "death_time").iter_rows())
    left_out = {}
    for task in ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia"):
        labels, rules = ehrshot_labels(cohort, task)
        assert not [1 for subject, at, _ in labels.iter_rows() if subject in died and at > died[subject]], task
        left_out[task] = rules.get("after_death", 0)
    assert left_out["new_acutemi"] == {"mimic4": 11, "mimic3": 33}[source]
    for name in ("los", "read", "dec"):
        for sample in make_samples(cohort, name)[1]:
            assert sample.prediction_time <= died.get(sample.subject_id, sample.prediction_time), name


def test_a_leak_score_is_unknown_where_the_outcomes_time_is() -> None:
    samples = [Sample("a", 1, 1, datetime(2150, 1, 3), (), 1)]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], [(1, 1, "VITAL/ph", START, START, 7.0)])
    found = exposure(cohort, samples)
    assert found.score is None and as_plain("paper", {"paper": found})["modes"]["paper"]["leak_score"] is None
    known = exposure(cohort, [replace(samples[0], outcome_time=datetime(2150, 1, 4))])
    assert known.score == 0


@pytest.mark.parametrize("place", ["at the end", "behind the header"])
@pytest.mark.parametrize("table", ["hosp/prescriptions", "hosp/admissions"])
@pytest.mark.parametrize("form", [".csv", ".csv.gz"])
def test_a_line_feed_among_old_macs_line_ends_hides_nothing(tmp_path: Path, place: str, table: str, form: str) -> None:
    """One at the end, or behind the header, left a table without rows, or of one row, without a word."""
    path = acceptance.write_mimic(tmp_path) / f"{table}.csv"
    head, _, rest = path.read_bytes().partition(b"\n")
    first, last = (b"\r", b"\n") if place == "at the end" else (b"\n", b"")
    data = head + first + ((rest.rstrip(b"\n") + b"\n") * 3).replace(b"\n", b"\r") + last
    path.unlink()
    path.with_suffix(form).write_bytes(gzip.compress(data) if form.endswith("gz") else data)
    with pytest.raises(BadInput, match=r"ends its lines with CR alone, as on old Macs.*: write LF or CRLF"):
        read_mimic4(tmp_path)


def test_a_carriage_return_within_a_text_is_no_line_end(tmp_path: Path) -> None:
    from ghar.data.readers.damage import check_line_ends

    path = tmp_path / "notes.csv"
    for text in (b'id,text\n1,"a\rb\rc\rd\re"\n', b"id,text\r\n1,a\r\n", b"id,text\n1,a\n2,b\rc\n", b"", b"id\n"):
        path.write_bytes(text)
        check_line_ends(path)


def test_a_header_alone_is_a_sentence_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = acceptance.write_mimic(tmp_path)
    (root / "hosp" / "prescriptions.csv").write_text(acceptance.MIMIC["hosp/prescriptions"] + "\n")
    read_mimic4(root)
    assert "prescriptions.csv has a header and no row: copy the table again" in capsys.readouterr().err
