"""Labels of the three tasks, recounted from the raw tables, and what each leakage mode shows."""

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.tasks.stays import make_samples
from ghar.errors import BadInput
from tests.data.audit import audit

DAY = timedelta(days=1)
START = datetime(2150, 1, 1, 12)


def make_cohort(visits, events=()):
    """visits: (subject, visit, start, end, death time or None); events: (subject, visit, code, recorded)."""
    when = pl.Datetime("us")
    frame = pl.DataFrame(
        [(s, v, start, end, death is not None, death) for s, v, start, end, death in visits],
        {
            "subject_id": pl.Int64,
            "visit_id": pl.Int64,
            "start": when,
            "end": when,
            "died": pl.Boolean,
            "death_time": when,
        },
        orient="row",
    )
    schema = {"subject_id": pl.Int64, "visit_id": pl.Int64, "code": pl.String, "recorded": when}
    rows = pl.DataFrame(list(events), schema, orient="row").with_columns(time=pl.col("recorded"))
    codes = pl.DataFrame({"code": rows["code"].unique(), "description": rows["code"].unique()})
    return Cohort("test cohort", rows, codes, frame.sort("subject_id", "start"))


def labels(samples):
    return dict(sorted(Counter(sample.label for sample in samples).items()))


@pytest.fixture(scope="module")
def cohort(mimic4_cohort):
    return mimic4_cohort


def test_los_counts_of_the_demo(cohort, demo_admissions):
    days = (demo_admissions["dischtime"] - demo_admissions["admittime"]).dt.total_seconds() // 86400
    expected = Counter(9 if d > 14 else 8 if d > 7 else d for d in days)  # 8..14 -> 8, >14 -> 9
    for leakage in ("paper", "strict"):
        task, samples = make_samples(cohort, "los", leakage=leakage)
        assert labels(samples) == dict(sorted(expected.items()))
        assert task.labels == tuple("0123456789")
    assert expected == {0: 30, 1: 25, 2: 32, 3: 25, 4: 28, 5: 26, 6: 17, 7: 16, 8: 50, 9: 26}


@pytest.mark.slow
def test_read_counts_of_the_demo(cohort, demo_admissions):
    # 275 admissions - 100 last ones; nobody who died in hospital has a next admission, no two stays overlap
    live = demo_admissions.filter((pl.col("hospital_expire_flag") == 0) & pl.col("next").is_not_null())
    soon = live.filter(pl.col("next") <= pl.col("dischtime") + pl.duration(days=15)).height
    for leakage in ("paper", "strict"):
        samples = make_samples(cohort, "read", leakage=leakage)[1]
        assert labels(samples) == {0: live.height - soon, 1: soon} == {0: 137, 1: 38}
    # trap 1: of the visits with all three kinds of codes 28 of 108, in time order (52 of 104 in id order)
    newest = [(s.history[-1], s.label) for s in make_samples(cohort, "read")[1]]
    full = [label for v, label in newest if v.diagnoses and v.procedures and v.medications]
    assert (len(full), sum(full)) == (108, 28)


def test_dec_counts_of_the_demo(cohort, demo_admissions):
    deaths = demo_admissions.filter(pl.col("hospital_expire_flag") == 1)
    assert labels(make_samples(cohort, "dec")[1]) == {0: 275 - deaths.height, 1: deaths.height} == {0: 260, 1: 15}
    early = deaths.filter(pl.col("deathtime") <= pl.col("admittime") + pl.duration(hours=24)).height
    assert labels(make_samples(cohort, "dec", anchor="admission")[1]) == {0: 275 - early, 1: early} == {0: 274, 1: 1}


@pytest.mark.slow
@pytest.mark.parametrize("anchor", ["discharge", "admission"])
@pytest.mark.parametrize("task", ["los", "read", "dec"])
def test_strict_shows_nothing_that_was_recorded_later(cohort, task, anchor):
    strict = make_samples(cohort, task, leakage="strict", anchor=anchor)[1]
    assert audit(cohort, strict).is_empty()
    paper = make_samples(cohort, task, anchor=anchor)[1]
    assert audit(cohort, paper).height > 0
    # Times and labels do not depend on what is shown (but for los, which the paper predicts at the discharge).
    assert [(s.sample_id, s.label) for s in strict] == [(s.sample_id, s.label) for s in paper]
    assert all(len(a.history) == len(b.history) for a, b in zip(strict, paper, strict=True))
    if task != "read":  # trap 2: no discharge-coded code of the predicted visit
        assert not any(s.history[-1].diagnoses or s.history[-1].procedures for s in strict)
        assert any(v.diagnoses for s in strict for v in s.history[:-1])


def test_visits_are_in_time_order(cohort):
    for sample in make_samples(cohort, "los")[1]:
        starts = [visit.start for visit in sample.history]
        assert starts == sorted(starts)
        assert sample.history[-1].visit_id == sample.visit_id


def test_legacy_order_walks_by_id():
    visits = [
        (1, 90, START, START + DAY, None),
        (1, 20, START + 10 * DAY, START + 11 * DAY, None),
        (1, 50, START + 60 * DAY, START + 61 * DAY, START + 61 * DAY),
    ]
    cohort = make_cohort(visits, [(1, 50, "ICD10CM/I509", START + 61 * DAY)])
    samples = make_samples(cohort, "read", legacy_order=True)[1]
    assert [(s.visit_id, s.label) for s in samples] == [(20, 0), (50, 1)]  # 50 -> 90 is minus 60 days, after a death
    assert [v.visit_id for v in samples[1].history] == [20, 50]
    long = make_samples(cohort, "los", legacy_order=True)[1]
    assert audit(cohort, [long[2]])["visit_id"].to_list() == [50]  # the first visit in time shows the last one
    with pytest.raises(BadInput, match="leakage=paper only"):
        make_samples(cohort, "read", legacy_order=True, leakage="strict")
    mixed = replace(cohort, visits=cohort.visits.sort("visit_id"))
    with pytest.raises(BadInput, match="1 visits of the test cohort are not in time order"):
        make_samples(mixed, "read")


def test_time_order_beats_id_order():
    visits = [
        (1, 90, START, START + DAY, None),
        (1, 20, START + 10 * DAY, START + 11 * DAY, None),
        (1, 50, START + 60 * DAY, START + 61 * DAY, None),
    ]
    samples = make_samples(make_cohort(visits), "read")[1]
    assert [(s.visit_id, s.label) for s in samples] == [(90, 1), (20, 0)]  # in id order: 20 -> 50 -> 90
    assert [v.visit_id for v in samples[1].history] == [90, 20]


@pytest.mark.parametrize(
    ("stay", "label"),
    [
        (timedelta(0), 0),
        (DAY - timedelta(seconds=1), 0),
        (DAY, 1),
        (8 * DAY - timedelta(seconds=1), 7),
        (8 * DAY, 8),
        (15 * DAY - timedelta(seconds=1), 8),
        (15 * DAY, 9),
    ],
)
def test_los_classes(stay, label):
    assert make_samples(make_cohort([(1, 1, START, START + stay, None)]), "los")[1][0].label == label


@pytest.mark.parametrize(
    ("gap", "label"),
    [(timedelta(0), 1), (15 * DAY, 1), (15 * DAY + timedelta(seconds=1), 0), (-timedelta(seconds=1), None)],
)
def test_readmission_window_is_closed_and_overlaps_are_left_out(gap, label):
    end = START + 5 * DAY
    visits = [
        (1, 1, START, end, None),
        (1, 2, end + gap, end + gap + DAY, None),
        (1, 3, end + 99 * DAY, end + 99 * DAY, None),
    ]
    found = {s.visit_id: s.label for s in make_samples(make_cohort(visits), "read")[1]}
    assert found.get(1) == label
    assert 3 not in found  # the last visit is censored, not negative


def test_readmission_needs_a_live_discharge():
    end = START + DAY
    visits = [
        (1, 1, START, end, end),
        (1, 2, end + DAY, end + 2 * DAY, None),
        (1, 3, end + 3 * DAY, end + 4 * DAY, None),
    ]
    assert [s.visit_id for s in make_samples(make_cohort(visits), "read")[1]] == [2]
    assert make_samples(make_cohort(visits), "read", window_days=0)[1][0].label == 0


@pytest.mark.slow
def test_unknown_end_is_shown_and_counts_as_readmission_but_is_not_predicted():
    visits = [
        (1, 1, START, START + DAY, None),
        (1, 2, START + 3 * DAY, None, None),
        (1, 3, START + 9 * DAY, START + 10 * DAY, None),
    ]
    cohort = make_cohort(visits)
    for task, predicted in (("los", [1, 3]), ("dec", [1, 3]), ("read", [1])):
        samples = make_samples(cohort, task)[1]
        assert [s.visit_id for s in samples] == predicted
    assert make_samples(cohort, "read")[1][0].label == 1
    assert len(make_samples(cohort, "los")[1][1].history) == 3


@pytest.mark.slow
def test_prediction_times():
    end = START + 5 * DAY
    visits = [
        (1, 1, START, end, None),
        (1, 2, end + DAY, end + DAY + timedelta(hours=2), end + DAY + timedelta(hours=1)),
    ]
    cohort = make_cohort(visits)

    def times(task, **options):
        return [s.prediction_time for s in make_samples(cohort, task, **options)[1]]

    assert times("los") == [end, end + DAY + timedelta(hours=1)]  # the death, an hour before the discharge
    assert times("los", leakage="strict") == [START, end + DAY]
    assert times("read") == times("read", leakage="strict") == [end]
    # 24 h before the end of the stay, but not before the admission
    assert times("dec") == times("dec", leakage="strict") == [end - DAY, end + DAY]
    assert times("dec", anchor="admission") == [START, end + DAY]


def test_a_discharge_dated_before_the_death_is_still_positive():
    """Trap 6: in the demo, three discharges are the midnight before the death."""
    death = START + 4 * DAY
    samples = make_samples(make_cohort([(1, 1, START, death - timedelta(hours=22), death)]), "dec")[1]
    assert samples[0].label == 1 and samples[0].prediction_time == death - DAY


@pytest.mark.slow
def test_strict_filters_every_visit_by_recording_time():
    end, second = START + 2 * DAY, START + 4 * DAY
    visits = [
        (1, 1, START, end, None),
        (1, 2, second, second + 3 * DAY, None),
        (1, 3, second + 9 * DAY, second + 10 * DAY, None),
    ]
    events = [
        (1, 1, "ICD10CM/I509", end),
        (1, 1, "DRUG/late", second + timedelta(hours=1)),  # trap 3: begins after the discharge
        (1, 2, "DRUG/early", second - timedelta(hours=1)),  # trap 3: begins before the admission
        (1, 2, "DRUG/later", second + timedelta(hours=5)),
        (1, 2, "DRUG/early", second + timedelta(hours=6)),
        (1, 2, "ICD10CM/I10", second + 3 * DAY),
        (1, 2, "ICD9PROC/3961", second + 3 * DAY),
        (1, 2, "LAB/1", second),
        (1, 2, "ICU_ADMISSION/MICU", second),
    ]
    cohort = make_cohort(visits, events)
    first, now = make_samples(cohort, "los", leakage="strict")[1][1].history
    assert (first.diagnoses, first.medications) == (("ICD10CM/I509",), ())
    assert (now.diagnoses, now.procedures, now.medications) == ((), (), ("DRUG/early",))
    now = make_samples(cohort, "los")[1][1].history[1]
    assert now.medications == ("DRUG/early", "DRUG/later") and now.procedures == ("ICD9PROC/3961",)
    at_discharge = make_samples(cohort, "read", leakage="strict")[1]
    assert at_discharge[0].history[0].medications == () and at_discharge[0].history[0].diagnoses == ("ICD10CM/I509",)
    assert at_discharge[1].history[1].diagnoses == ("ICD10CM/I10",)


def test_a_stay_of_no_length_hides_its_discharge_codes():
    cohort = make_cohort([(1, 1, START, START, None)], [(1, 1, "ICD10CM/I509", START)])
    for task in ("los", "dec"):
        assert make_samples(cohort, task, leakage="strict")[1][0].history[0].diagnoses == ()


def test_audit_lists_what_the_paper_shows_too_early():
    end = START + 3 * DAY
    events = [(1, 1, "ICD10CM/I509", end), (1, 1, "DRUG/a", START)]
    cohort = make_cohort([(1, 1, START, end, None)], events)
    found = audit(cohort, make_samples(cohort, "dec")[1])
    assert found.select("sample_id", "code", "recorded").rows() == [("dec-1-1", "ICD10CM/I509", end)]


def test_bad_requests():
    cohort = make_cohort([(1, 1, START, START + DAY, None)])
    with pytest.raises(BadInput, match="Task read has no sample in the test cohort"):
        make_samples(cohort, "read")
    for options in ({"task": "guess"}, {"task": "los", "leakage": "some"}, {"task": "dec", "anchor": "noon"}):
        with pytest.raises(BadInput, match="choose"):
            make_samples(cohort, **options)


@pytest.mark.slow
def test_no_history_and_no_next_visit_across_groups():
    """Trap 7: hospital stays of one patient in a year have no order, and their ICU stays may seem to interleave."""
    visits = [
        (1, 10, START, START + DAY, None),
        (1, 11, START + 2 * DAY, START + 3 * DAY, None),
        (1, 20, START + DAY, START + 2 * DAY, None),
        (1, 21, START + 5 * DAY, START + 6 * DAY, None),
    ]
    plain = make_cohort(visits)
    frame = plain.visits.with_columns(group=pl.col("visit_id") // 10).sort("subject_id", "group", "start")
    cohort = replace(plain, visits=frame, stay="ICU")
    shown = {s.visit_id: [v.visit_id for v in s.history] for s in make_samples(cohort, "los")[1]}
    assert shown == {10: [10], 11: [10, 11], 20: [20], 21: [20, 21]}
    assert [(s.visit_id, s.label) for s in make_samples(cohort, "read", window_days=2)[1]] == [
        (10, 1),
        (11, 0),  # the last of its group: the hospital stay ended without a return
        (20, 0),
        (21, 0),
    ]
    for task, word in (("los", "this ICU stay"), ("read", "return to an ICU"), ("dec", "die in the ICU")):
        assert word in make_samples(cohort, task)[0].question and word not in make_samples(plain, task)[0].question
