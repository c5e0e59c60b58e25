"""Which stays are asked about, and a quick look at some patients, on the open demos."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.readers.source import take_patients
from ghar.data.tasks.eligible import eligible, stays_of
from ghar.data.tasks.stays import make_samples
from ghar.errors import BadInput
from ghar.launch.entry import load


def test_first_stays_are_one_a_patient_and_the_earliest(mimic4_cohort: Cohort) -> None:
    first = stays_of(mimic4_cohort, "first")
    table = mimic4_cohort.visits
    earliest = table.group_by("subject_id").agg(pl.col("start").min())
    kept = table.filter(pl.col("visit_id").is_in(list(first)))
    assert len(first) == table["subject_id"].n_unique()
    assert kept.join(earliest, on=["subject_id", "start"]).height == len(first)


def test_stays_with_intensive_care_are_those_of_icustays(mimic4_cohort: Cohort, demo: Path) -> None:
    told = pl.read_csv(demo / "icu" / "icustays.csv.gz")["hadm_id"].unique()
    assert stays_of(mimic4_cohort, "icu") == set(told.to_list())


def test_adults_are_those_whose_charted_age_says_so(eicu_cohort: Cohort, demo_eicu: Path) -> None:
    ages = pl.read_csv(demo_eicu / "patient.csv.gz", infer_schema_length=0).select(
        pl.col("patientunitstayid").cast(pl.Int64),
        pl.col("age").replace("> 89", "90").cast(pl.Float64, strict=False),
    )
    adults = set(ages.filter(pl.col("age") >= 18)["patientunitstayid"].to_list())
    assert stays_of(eicu_cohort, "adults") == adults & set(eicu_cohort.visits["visit_id"].to_list())
    assert stays_of(eicu_cohort, "icu") == set(eicu_cohort.visits["visit_id"].to_list())


def test_years_of_mimic4_are_those_in_which_a_stay_was_for_certain(mimic4_cohort: Cohort, demo: Path) -> None:
    people = pl.read_csv(demo / "hosp" / "patients.csv.gz")
    group = {p: (int(g[:4]), int(g[-4:])) for p, g in people.select("subject_id", "anchor_year_group").iter_rows()}
    anchor = dict(people.select("subject_id", "anchor_year").iter_rows())
    wanted = set()
    for visit, subject, start in mimic4_cohort.visits.select("visit_id", "subject_id", "start").iter_rows():
        first, last = (year + start.year - anchor[subject] for year in group[subject])
        if 2011 <= first and last <= 2016:
            wanted.add(visit)
    samples = make_samples(mimic4_cohort, "los")[1]
    kept, counts = eligible(samples, mimic4_cohort, ["2011-2016"], str(demo))
    assert {sample.visit_id for sample in kept} == wanted and 50 < len(kept) < len(samples)
    assert counts == {"left out, task.stays=2011-2016": len(samples) - len(kept)}


def test_years_of_eicu_are_those_of_the_hospital_discharge(eicu_cohort: Cohort, demo_eicu: Path) -> None:
    years = pl.read_csv(demo_eicu / "patient.csv.gz", infer_schema_length=0).filter(hospitaldischargeyear="2014")
    mine = {int(stay) for stay in years["patientunitstayid"]}
    samples = make_samples(eicu_cohort, "los")[1]
    kept = eligible(samples, eicu_cohort, ["2014"], str(demo_eicu))[0]
    assert {sample.visit_id for sample in kept} == mine & {sample.visit_id for sample in samples} and kept


def test_years_of_a_source_that_tells_none_are_refused(mimic3_cohort: Cohort, shared_data: Path) -> None:
    samples = make_samples(mimic3_cohort, "los")[1]
    for root in (str(shared_data / "mimic-iii-demo-1.4"), None):
        with pytest.raises(BadInput, match=r"years \(2011-2016\).*do not say in which years.*leave the years out"):
            eligible(samples, mimic3_cohort, ["2011-2016"], root)


def test_rules_leave_histories_whole_and_are_counted_one_after_the_other(mimic4_cohort: Cohort) -> None:
    samples = make_samples(mimic4_cohort, "los")[1]
    kept, counts = eligible(samples, mimic4_cohort, ["icu", "first"])
    icu, first = stays_of(mimic4_cohort, "icu"), stays_of(mimic4_cohort, "first")
    assert kept == [sample for sample in samples if sample.visit_id in icu & first]
    assert sum(counts.values()) == len(samples) - len(kept) and list(counts) == [
        "left out, task.stays=icu", "left out, task.stays=first"
    ]  # fmt: skip
    assert eligible(samples, mimic4_cohort, []) == (samples, {})


@pytest.mark.slow
def test_a_rule_that_leaves_no_one_is_a_sentence(mimic4_cohort: Cohort) -> None:
    samples = [s for s in make_samples(mimic4_cohort, "los")[1] if s.visit_id not in stays_of(mimic4_cohort, "icu")]
    with pytest.raises(BadInput, match=rf"leaves none of {len(samples)} samples \(icu left out {len(samples)}\)"):
        eligible(samples, mimic4_cohort, ["icu"])


@pytest.mark.parametrize("count", [1, 20, 1000])
def test_some_patients_have_all_that_is_theirs(mimic4_cohort: Cohort, count: int) -> None:
    some = take_patients(mimic4_cohort, count)
    people = some.events["subject_id"].unique()
    assert len(people) == min(count, 100)
    assert set(some.visits["subject_id"]) <= set(people)
    theirs = mimic4_cohort.events.filter(pl.col("subject_id").is_in(people.implode()))
    assert some.events.equals(theirs)
    assert set(people) <= set(take_patients(mimic4_cohort, count + 1).events["subject_id"])


@pytest.mark.parametrize(("words", "read"), [
    (["task.stays=[2014]"], ("2014",)),
    (["task.stays=[adults,2011-2016]"], ("adults", "2011-2016")),
])  # fmt: skip
def test_years_may_be_one_or_a_span(words: list[str], read: tuple[str, ...]) -> None:
    assert load(words).task.stays == read


@pytest.mark.parametrize(("words", "told"), [
    (["data.take=10"], "data.take takes some patients of real tables"),
    (["task=guo_los", "system=ehr_rag", "task.stays=[icu]"], "task=guo_los has none"),
    (["task.stays=[old]"], "years such as 2011-2016"),
    (["task.stays=[2016-2011]"], "years such as 2011-2016"),
])  # fmt: skip
def test_keys_that_do_not_go_together(words: list[str], told: str) -> None:
    with pytest.raises(BadInput, match=told.replace("[", r"\[")):
        load(words)
