"""KARE's tasks: labels counted again from the demo's files, the rules one by one, and the draw for MIMIC-IV."""

from collections import Counter
from dataclasses import replace

import polars as pl
import pytest

from ghar.data.tasks.next_visit import mimic4_sample, next_visit_samples
from ghar.data.tasks.visits import visit_samples
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.data.audit import audit
from tests.data.small import DAY, HOUR, START, balance, small_cohort

pytestmark = pytest.mark.slow

KINDS = ("ICD10CM/I509", "ICD10PCS/02100Z9", "DRUG/aspirin")


def complete(subject, visit, at):
    return [(subject, visit, code, at) for code in KINDS]


@pytest.fixture(scope="module")
def cohort(mimic4_cohort):
    return mimic4_cohort


def test_labels_of_the_demo(cohort, demo, demo_admissions):
    stays = demo_admissions.with_columns(dies=pl.col("hospital_expire_flag").shift(-1).over("subject_id"))
    stays = stays.filter(pl.col("next").is_not_null() & (pl.col("hospital_expire_flag") == 0))
    for name in ("diagnoses_icd", "procedures_icd", "prescriptions"):  # PyHealth: a code of every kind
        stays = stays.join(pl.read_csv(demo / f"hosp/{name}.csv.gz", columns=["hadm_id"]), on="hadm_id", how="semi")
    gap, between = pl.col("next") - pl.col("dischtime"), pl.col("next") - pl.col("admittime")
    dies = stays.filter(dies=1).height
    soon = stays.filter(gap <= pl.duration(days=15)).height
    released = stays.filter(between < pl.duration(days=15)).height
    assert stays.height == 108 and (dies, soon, released) == (10, 28, 10)  # docs/traps.md, trap 1: 28 of 108
    for leakage in ("paper", "strict"):
        for task, window, positive in (
            ("mortality", "paper", dies),
            ("readmission", "paper", soon),
            ("readmission", "released", released),
        ):
            about, samples = next_visit_samples(cohort, task, leakage=leakage, window=window)
            assert balance(samples) == {0: 108 - positive, 1: positive} and about.labels == ("no", "yes")
            assert audit(cohort, samples).is_empty() == (leakage == "strict")


def test_who_is_predicted_and_what_is_shown():
    at, end = START, START + DAY
    visits = [
        (1, 1, at, end, None),
        (1, 2, at + 5 * DAY, at + 6 * DAY, None),  # no drug: shown, not predicted from
        (1, 3, at + 9 * DAY, at + 10 * DAY, None),
        (1, 4, at + 30 * DAY, at + 31 * DAY, at + 31 * DAY),
        (2, 5, at, end, end),  # died, and an organ donor is readmitted
        (2, 6, end + HOUR, end + DAY, None),
        (3, 7, at, end, None),
        (3, 8, end - HOUR, end + DAY, None),  # began before the discharge
    ]
    events = [
        e for visit in visits for e in complete(visit[0], visit[1], visit[3]) if (visit[1], e[2]) != (2, KINDS[2])
    ]
    cohort = small_cohort(visits, [*events, (1, 1, "DRUG/late", end, at + 20 * DAY)])
    found = {s.visit_id: s for s in next_visit_samples(cohort, "mortality")[1]}
    assert {visit: s.label for visit, s in found.items()} == {1: 0, 3: 1}
    assert [v.visit_id for v in found[3].history] == [1, 2, 3] and found[3].prediction_time == at + 10 * DAY
    assert "DRUG/late" in found[3].history[0].medications
    strict = {s.visit_id: s for s in next_visit_samples(cohort, "mortality", leakage="strict")[1]}
    assert strict[3].history[0].medications == ("DRUG/aspirin",)


@pytest.mark.parametrize("seconds, paper, released", [(-1, 1, 1), (0, 1, 0), (1, 0, 0)])
def test_the_two_windows(seconds, paper, released):
    stay, edge = DAY, 15 * DAY + HOUR / 3600 * seconds
    for window, label, since in (("paper", paper, START + stay), ("released", released, START)):
        visits = [(1, 1, START, START + stay, None), (1, 2, since + edge, since + edge + DAY, None)]
        cohort = small_cohort(visits, complete(1, 1, START))
        assert [s.label for s in next_visit_samples(cohort, "readmission", window=window)[1]] == [label]


def test_the_draw_for_mimic4():
    visits, events = [], []
    for subject in range(60):
        count = 13 if subject < 4 else 3
        for i in range(count):
            start = START + 40 * i * DAY
            dies = i == count - 1 and subject % 5 == 0
            visits.append((subject, subject * 20 + i, start, start + DAY, start + DAY if dies else None))
            events += complete(subject, subject * 20 + i, start)
    samples = next_visit_samples(small_cohort(visits, events), "mortality")[1]
    drawn = mimic4_sample(samples, "mortality", size=40)
    patients = Counter(s.subject_id for s in drawn)
    assert len(drawn) == 40 == len(patients)
    # Of the 12 patients who die, one has 13 visits and dies in the last: its positive sample shows more than ten.
    assert balance(drawn) == {0: 29, 1: 11} and all(len(s.history) <= 10 for s in drawn)
    assert [s.sample_id for s in mimic4_sample(samples, "mortality", size=40)] == [s.sample_id for s in drawn]
    assert mimic4_sample(samples, "mortality", size=40, seed=1) != drawn
    half = mimic4_sample(samples, "readmission", size=20)
    assert balance(half) == {0: 10, 1: 10} and len({s.subject_id for s in half}) == 20
    for task, size in (("mortality", 61), ("readmission", 60), ("mortality", 5)):
        with pytest.raises(BadInput, match=f"draw of {size} patients"):
            mimic4_sample(samples, task, size=size)


def test_every_task_on_visits_has_samples(cohort):
    """task=NAME of conf/task that shows visits of codes, and legacy_order as far as it goes."""
    for name in ("los", "read", "dec", "kare_mortality", "kare_readmission"):
        config = load(["data=mimic4", "data.root=.", f"task={name}"])
        about, samples = visit_samples(cohort, config.task, config.data.leakage)
        assert samples and about.name == name.replace("_", "-")
    old = load(["data=mimic4", "data.root=.", "task=kare_readmission", "task.legacy_order=true"])
    assert balance(visit_samples(cohort, old.task, "paper")[1]) == {0: 52, 1: 52}  # trap 1
    for wrong, said in (
        (["task.legacy_order=true", "data.leakage=strict"], "choose data.leakage=paper"),
    ):
        with pytest.raises(BadInput, match=said):
            load(wrong)


def test_bad_requests():
    cohort = small_cohort([(1, 1, START, START + DAY, None)])
    with pytest.raises(BadInput, match="has no sample"):
        next_visit_samples(cohort, "mortality")
    for options in ({"task": "los"}, {"task": "mortality", "window": "x"}, {"task": "mortality", "leakage": "x"}):
        with pytest.raises(BadInput, match="choose"):
            next_visit_samples(cohort, **options)


def test_readmission_is_refused_where_a_next_visit_is_of_the_same_hospital_stay(eicu_cohort):
    """180 of the open demo's 182 would be positive."""
    with pytest.raises(BadInput, match="within days for nearly everyone"):
        next_visit_samples(eicu_cohort, "readmission")


def test_the_question_of_an_icu_stay_is_about_an_icu_stay() -> None:
    """Of eICU "the next hospital visit" was asked about, and the label is a death in the next ICU stay of this one."""
    visits = [(1, 1, START, START + DAY, None), (1, 2, START + 2 * DAY, START + 3 * DAY, START + 3 * DAY)]
    cohort = small_cohort(visits, [*complete(1, 1, START), *complete(1, 2, START + 2 * DAY)])
    assert next_visit_samples(cohort, "mortality")[0].question == "Will this patient die in the next hospital visit?"
    icu = next_visit_samples(replace(cohort, stay="ICU"), "mortality")[0]
    assert icu.question == "Will this patient die in the next ICU stay?"
