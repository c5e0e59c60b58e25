"""One test for each trap of docs/traps.md, on the real demos, counted again from their files."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest

from ghar.data.readers.mimic4 import read_mimic4
from ghar.data.tasks.next_visit import next_visit_samples
from ghar.data.tasks.series import series_samples
from ghar.data.tasks.splits import split_by_patient
from ghar.data.tasks.stays import make_samples
from ghar.envs.kare.retrieval.similar import SimilarPatients
from tests.data.audit import audit
from tests.data.small import balance

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
GIVEN_UP = ("ICD9CM/V667", "ICD10CM/Z515", "ICD9CM/V4986", "ICD10CM/Z66")  # palliative care, do not resuscitate


def test_trap_1_visits_in_time_order_and_legacy_order(mimic4_cohort, demo):
    raw = pl.read_csv(demo / "hosp/admissions.csv.gz", try_parse_dates=True).sort("subject_id", "hadm_id")
    following = pl.col("admittime").shift(-1).over("subject_id")
    pairs = raw.with_columns(next=following).drop_nulls("next")
    assert (pairs.filter(pl.col("next") < pl.col("admittime")).height, pairs.height) == (88, 175)  # half by id
    for sample in make_samples(mimic4_cohort, "los")[1]:
        starts = [visit.start for visit in sample.history]
        assert starts == sorted(starts)
    # PyHealth 1.1.x: by id, admission to admission, visits with a code of each kind (recounted from the files)
    for name in ("diagnoses_icd", "procedures_icd", "prescriptions"):
        pairs = pairs.join(pl.read_csv(demo / f"hosp/{name}.csv.gz", columns=["hadm_id"]), on="hadm_id", how="semi")
    soon = pairs.filter((pl.col("next") - pl.col("admittime")) < pl.duration(days=15)).height
    legacy = next_visit_samples(mimic4_cohort, "readmission", window="released", legacy_order=True)[1]
    assert balance(legacy) == {0: pairs.height - soon, 1: soon} == {0: 52, 1: 52}
    assert balance(next_visit_samples(mimic4_cohort, "readmission")[1]) == {0: 80, 1: 28}
    complete = set(pairs["hadm_id"])
    shown = [s for s in make_samples(mimic4_cohort, "read", legacy_order=True)[1] if s.visit_id in complete]
    assert balance(shown) == {0: 52, 1: 52}
    known_too_early = audit(mimic4_cohort, legacy)
    assert known_too_early.filter(pl.col("recorded") - pl.col("prediction_time") > DAY).height > 0


@pytest.mark.slow
def test_trap_2_diagnoses_are_coded_at_discharge(mimic4_cohort, demo):
    raw = pl.read_csv(demo / "hosp/diagnoses_icd.csv.gz", schema_overrides={"icd_code": pl.String})
    stays = {
        visit
        for visit, code, version in raw.select("hadm_id", "icd_code", "icd_version").iter_rows()
        if f"ICD{version}CM/{code.strip()}" in GIVEN_UP
    }
    assert len(stays) == 30
    for task in ("los", "dec"):
        paper = make_samples(mimic4_cohort, task)[1]
        strict = make_samples(mimic4_cohort, task, leakage="strict")[1]
        assert {s.visit_id for s in paper if set(s.history[-1].diagnoses) & set(GIVEN_UP)} == stays
        assert not any(s.history[-1].diagnoses or s.history[-1].procedures for s in strict)
    left = make_samples(mimic4_cohort, "read", leakage="strict")[1]  # at the discharge they are known
    assert any(set(s.history[-1].diagnoses) & set(GIVEN_UP) for s in left)


def test_trap_3_prescriptions_outside_their_stay(mimic4_cohort, mimic3_cohort, demo):
    drugs = pl.read_csv(demo / "hosp/prescriptions.csv.gz", infer_schema=False).filter(pl.col("drug_type") != "BASE")
    raw = drugs.select(
        pl.col("hadm_id").cast(int), pl.col("starttime").str.to_datetime("%Y-%m-%d %H:%M:%S")
    )
    stays = pl.read_csv(demo / "hosp/admissions.csv.gz", try_parse_dates=True).select(
        "hadm_id", "admittime", "dischtime"
    )
    rows = raw.join(stays, on="hadm_id").drop_nulls("starttime")
    start, end = pl.col("starttime"), pl.col("dischtime")
    wanted = (rows.filter(start < pl.col("admittime")).height, rows.filter(start > end).height)
    drugs = mimic4_cohort.events.filter(pl.col("code").str.starts_with("DRUG/")).join(
        mimic4_cohort.visits.select("visit_id", "start", "end"), on="visit_id"
    )
    timed = drugs.filter(pl.col("recorded") == pl.col("time"))
    early, late = timed.filter(pl.col("time") < pl.col("start")), timed.filter(pl.col("time") > pl.col("end"))
    assert (early.height, late.height) == wanted == (187, 125)
    after = set(late.select("visit_id", "code").rows())
    before = set(timed.filter(pl.col("time") <= pl.col("end")).select("visit_id", "code").rows())
    for sample in make_samples(mimic4_cohort, "read", leakage="strict")[1]:
        own = {(sample.visit_id, code) for code in sample.history[-1].medications}
        assert not own & (after - before)
    # MIMIC-III has dates only: known when the day is over
    days = mimic3_cohort.events.filter(pl.col("code").str.starts_with("DRUG/")).select("time", "recorded").drop_nulls()
    dated = days.filter(pl.col("time") == pl.col("time").dt.truncate("1d"))
    assert (dated["recorded"] - dated["time"] >= timedelta(hours=23, minutes=59)).mean() > 0.99


def test_trap_4_labs_are_known_when_stored(mimic4_cohort, demo):
    raw = pl.read_csv(demo / "hosp/labevents.csv.gz", infer_schema=False)
    drawn, stored = (pl.col(c).str.to_datetime("%Y-%m-%d %H:%M:%S") for c in ("charttime", "storetime"))
    delay = raw.select(hours=(stored - drawn).dt.total_minutes() / 60)["hours"]
    assert delay.null_count() == 992 == mimic4_cohort.counts["repaired.labevents.no_storetime"]
    assert (delay.median(), delay.quantile(0.95)) == (pytest.approx(1.1, abs=0.05), pytest.approx(4.9, abs=0.05))
    labs = mimic4_cohort.events.filter(pl.col("code").str.starts_with("LAB/"))
    hours = labs.select(h=(pl.col("recorded") - pl.col("time")).dt.total_minutes() / 60)["h"]
    assert hours.median() == pytest.approx(1.1, abs=0.05) and hours.min() == 0
    features = ("LAB/50912",)
    paper, strict = (
        series_samples(mimic4_cohort, "mortality", features=features, leakage=m)[1] for m in ("paper", "strict")
    )
    assert audit(mimic4_cohort, paper).height > 0 and audit(mimic4_cohort, strict).is_empty()


@pytest.mark.slow
@pytest.mark.parametrize("source", ["mimic3", "mimic4", "eicu"])
def test_trap_5_no_event_carries_the_end_of_its_stay(source, request):
    cohort = request.getfixturevalue(f"{source}_cohort")
    stays = cohort.events.filter(pl.col("code").str.starts_with("ICU_ADMISSION/"))
    assert stays.height > 0 and stays["numeric_value"].null_count() == stays["text_value"].null_count() == stays.height
    assert stays["time"].equals(stays["recorded"].alias("time"))
    left = cohort.events.filter(pl.col("code") == "ICU_DISCHARGE")  # known when it happens
    assert left["time"].equals(left["recorded"].alias("time"))
    measured = cohort.events.filter(pl.col("code").str.contains("^(LAB|VITAL)/"))
    assert measured.filter(pl.col("recorded") < pl.col("time")).is_empty()


def test_trap_6_a_date_of_death_does_not_precede_the_admission(mimic3_cohort, mimic4_cohort, shared_data):
    for cohort in (mimic3_cohort, mimic4_cohort):
        deaths = cohort.visits.filter("died")
        assert deaths.height > 0 and deaths.filter(pl.col("death_time") < pl.col("start")).is_empty()
    raw = pl.read_csv(shared_data / "mimic-iii-demo-1.4/ADMISSIONS.csv.gz", try_parse_dates=True)
    before = raw.filter((pl.col("hospital_expire_flag") == 1) & (pl.col("deathtime") < pl.col("admittime"))).height
    assert mimic3_cohort.counts.get("repaired.admissions.death_before_admission", 0) == before


@pytest.mark.slow
def test_trap_7_eicu_knows_order_and_death_inside_a_hospital_stay_only(eicu_cohort, demo_eicu):
    raw = pl.read_csv(demo_eicu / "patient.csv.gz", infer_schema_length=None)
    dead = raw.filter(pl.col("hospitaldischargestatus") == "Expired")
    assert dead.height == 212 and eicu_cohort.visits["died"].sum() == 126  # not every stay of a hospital stay
    group = dict(eicu_cohort.visits.select("visit_id", "group").rows())
    for task in ("los", "read", "dec"):
        for sample in make_samples(eicu_cohort, task)[1]:
            assert {group[v.visit_id] for v in sample.history} == {group[sample.visit_id]}
    several = raw.group_by("uniquepid").agg(pl.col("patienthealthsystemstayid").n_unique() > 1)
    assert several["patienthealthsystemstayid"].sum() == 221  # patients whose hospital stays have no known order


def test_trap_8_similar_patients_are_of_the_training_set_earlier_and_others(mimic4_cohort):
    samples = make_samples(mimic4_cohort, "read", leakage="strict")[1]
    splits = split_by_patient(samples)
    similar = SimilarPatients(splits.train, np.eye(len(splits.train), dtype=np.float32), earlier=True)
    vector = np.ones(len(splits.train), dtype=np.float32)  # alike to everyone
    for sample in (*splits.test, *splits.train):
        shown = similar.find(sample, vector, each=len(splits.train))
        assert sample.subject_id not in {other.subject_id for other in shown}
        wanted = [o for o in splits.train if o.subject_id != sample.subject_id]
        # the outcome: the next admission, or the end of the 15 days without one
        now = sample.prediction_time
        wanted = [o for o in wanted if o.prediction_time + timedelta(days=0 if o.label else 15) <= now]
        assert all(o.outcome_time and o.outcome_time <= sample.prediction_time for o in shown)
        assert {o.subject_id for o in shown} <= {o.subject_id for o in wanted}
        if all(o.label == 0 for o in wanted):
            assert {o.subject_id for o in shown} == {o.subject_id for o in wanted}
    assert not {s.subject_id for s in splits.train} & {s.subject_id for s in (*splits.valid, *splits.test)}


@pytest.mark.slow
def test_trap_9_code_strings_that_are_valid_in_both_versions(demo, tmp_path, write_tables):
    raw = pl.read_csv(demo / "hosp/d_icd_diagnoses.csv.gz", infer_schema=False)
    titles = {
        (code.strip(), version): title
        for code, version, title in raw.select("icd_code", "icd_version", "long_title").rows()
    }
    both = sorted({code for code, version in titles if version == "9"} & {code for code, v in titles if v == "10"})
    assert len(both) == 493
    rows = [f"1,90,{i},{code},{version}" for i, code in enumerate(both) for version in (9, 10)]
    root = write_tables(tmp_path, {"hosp/diagnoses_icd": rows})
    raw.write_csv(root / "hosp/d_icd_diagnoses.csv")
    names = read_mimic4(root).names()
    for code in both:
        assert (names[f"ICD9CM/{code}"], names[f"ICD10CM/{code}"]) == (titles[code, "9"], titles[code, "10"])
