"""GraphWalker's tasks: labels counted again from the demos, the arrays against a slow direct evaluation, leaks."""

from datetime import timedelta

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.tasks.icu import benchmark_stays, icu_stays
from ghar.data.tasks.series import TASKS, series_labels, series_samples
from ghar.errors import BadInput
from tests.data.audit import audit
from tests.data.small import DAY, HOUR, START, balance, small_cohort

TWO_DAYS, MONTH = pl.duration(hours=48), pl.duration(days=30)
CREATININE = ("LAB/50912",)


@pytest.fixture(scope="module")
def cohort(mimic4_cohort):
    return mimic4_cohort


@pytest.fixture(scope="module")
def creatinine(demo, demo_admissions) -> pl.DataFrame:
    """Hours after the admission and values of creatinine, of the admission or without one, from the file itself."""
    labs = pl.read_csv(demo / "hosp/labevents.csv.gz", infer_schema=False).filter(itemid="50912")
    labs = labs.filter(pl.col("valuenum").is_not_null()).select(
        pl.col("subject_id").cast(int), lab_hadm=pl.col("hadm_id").cast(int), at=pl.col("charttime").str.to_datetime()
    )
    rows = labs.join(demo_admissions, on="subject_id")
    return rows.filter((pl.col("lab_hadm") == pl.col("hadm_id")) | pl.col("lab_hadm").is_null())


def test_labels_of_the_demo(cohort, demo, demo_admissions, creatinine):
    start, end, at = pl.col("admittime"), pl.col("dischtime"), pl.col("at")
    died = pl.col("hospital_expire_flag")
    long = creatinine.filter((end - start >= TWO_DAYS) & (at >= start) & (at <= start + TWO_DAYS))
    counts = dict(long.unique("hadm_id").group_by("hospital_expire_flag").len().sort("hospital_expire_flag").rows())
    for step in (1, 24):
        samples = series_samples(cohort, "mortality", features=CREATININE, step_hours=step)[1]
        assert balance(samples) == counts and all(s.history.values.shape == (48 // step, 1) for s in samples)
    assert counts == {0: 202, 1: 13}
    stays = demo_admissions.filter(end - start >= TWO_DAYS)  # measured or not
    assert dict(series_labels(cohort, "mortality").group_by("label").len().rows()) == {0: 207, 1: 13}
    assert (stays.height, stays["hospital_expire_flag"].sum()) == (220, 13)

    # Deaths after a discharge are those of dod: 5 of last stays with a value, which were left out when it was not read.
    patients = pl.read_csv(demo / "hosp/patients.csv.gz", try_parse_dates=True)
    dod = patients.select("subject_id", death=pl.col("dod").cast(pl.Datetime("us")) + timedelta(seconds=86399))
    live = demo_admissions.filter(died == 0).join(dod, on="subject_id", how="left")
    dies = ((pl.col("death") - end) <= MONTH).fill_null(False)
    known = live.filter(pl.col("next").is_not_null() | dies)
    measured = creatinine.filter((at >= start) & (at <= end)).select("hadm_id").unique()
    back = ((pl.col("next") - end <= MONTH).fill_null(False) | dies).cast(int)
    known = known.join(measured, on="hadm_id").with_columns(back=back)
    expected = dict(known.group_by("back").len().sort("back").rows())
    assert balance(series_samples(cohort, "readmission", features=CREATININE)[1]) == expected == {0: 101, 1: 55}

    days = demo_admissions.join(measured, on="hadm_id").select(d=(end - start).dt.total_seconds() / 86400)["d"]
    expected = {
        i: sum(low <= d < high for d in days) for i, (low, high) in enumerate([(0, 3), (3, 7), (7, 14), (14, 999)])
    }
    assert balance(series_samples(cohort, "los", features=CREATININE)[1]) == expected


@pytest.fixture(scope="module")
def charted(mimic3_cohort):
    return mimic3_cohort


@pytest.mark.parametrize("task", [task for task in TASKS if task != "dec"])
def test_strict_shows_nothing_that_was_stored_later(cohort, charted, task):
    for source in (cohort, charted):
        features = tuple(c for c in source.codes["code"] if c.startswith(("LAB/509", "VITAL/")))
        paper = series_samples(source, task, features=features)[1]
        strict = series_samples(source, task, features=features, leakage="strict")[1]
        assert audit(source, paper).height > 0 and audit(source, strict).is_empty()
        assert {s.sample_id for s in strict} <= {s.sample_id for s in paper}
        if task == "los":
            assert all(s.history.values.shape[0] == 1 for s in strict)  # 24 h, whatever the stay


times = st.integers(-3, 80)
readings = st.lists(
    st.tuples(
        times, st.integers(0, 10), st.sampled_from("ab"), st.none() | st.integers(0, 9), st.sampled_from([1, None])
    ),
    max_size=12,
)


@pytest.mark.parametrize(("step", "steps"), [(1, 168), (7, 24), (24, 7), (100, 2)])
def test_a_stay_that_is_shown_to_its_end_keeps_seven_days(step: int, steps: int) -> None:
    end = START + 30 * DAY
    visits = [(1, 1, START, end, None), (1, 2, end + 3 * DAY, end + 4 * DAY, None)]
    cohort = small_cohort(visits, [(1, 1, "VITAL/a", START + DAY, START + DAY, 1.0)])
    [sample] = series_samples(cohort, "readmission", features=("VITAL/a",), step_hours=step)[1]
    assert sample.history.values.shape == (steps, 1) and sample.history.hours[-1] == 30 * 24
    assert (sample.history.values == 1).all()  # carried forward from the steps that are cut off


@pytest.mark.slow
@settings(max_examples=60)
@given(readings, st.integers(1, 75), st.sampled_from([1, 7, 24]), st.integers(1, 6), st.booleans())
def test_values_against_their_plain_reading(rows, stay, step, keep, strict):
    end = START + stay * HOUR
    events = [
        (1, visit, f"VITAL/{code}", START + t * HOUR, START + (t + late) * HOUR, value)
        for t, late, code, value, visit in rows
    ]
    visits = [(1, 1, START, end, None), (1, 2, end + 3 * DAY, end + 4 * DAY, None)]
    cohort = small_cohort(visits, [*events, (1, 2, "VITAL/a", end + 3 * DAY, end + 3 * DAY, 1.0)])
    mode = "strict" if strict else "paper"
    options = {"features": ("VITAL/a", "VITAL/b"), "step_hours": step, "last_steps": keep, "leakage": mode}
    try:
        samples = {s.visit_id: s for s in series_samples(cohort, "readmission", **options)[1]}
    except BadInput:
        samples = {}
    shown = [
        (e[3], i, e[5], e[2])
        for i, e in enumerate(
            cohort.events.select("subject_id", "visit_id", "code", "time", "recorded", "numeric_value").rows()
        )
        if START <= e[3] <= end and e[1] in (1, None) and e[5] is not None and (not strict or e[4] <= end)
    ]
    if not shown:
        assert 1 not in samples
        return
    sample = samples[1]
    steps = max(-(-stay // step), 1)
    assert sample.history.values.shape == (min(steps, keep), 2) and sample.history.hours[-1] == stay
    found = sample.history
    for row, number in enumerate(range(steps)[-keep:]):
        last = number == steps - 1
        for column, code in enumerate(options["features"]):
            until = START + (number + 1) * step * HOUR
            before = [r for r in shown if r[3] == code and (r[0] < until or last)]
            seen = any(r[0] >= until - step * HOUR for r in before)
            if before:
                assert found.values[row, column] == before[-1][2] and found.source[row, column] == before[-1][1]
            else:
                assert np.isnan(found.values[row, column]) and found.source[row, column] == -1
            assert found.observed[row, column] == seen


@pytest.mark.parametrize(
    "stay, death, label",
    [(48 * HOUR, None, 0), (47 * HOUR, None, None), (72 * HOUR, 72 * HOUR, 1), (72 * HOUR, 47 * HOUR, None)],
)
def test_mortality(stay, death, label):
    visits = [(1, 1, START, START + stay, START + death if death else None)]
    other = (2, 2, START, START + 3 * DAY, None)
    events = [(v[0], v[1], "VITAL/ph", START + HOUR, START + HOUR, 7.0) for v in (*visits, other)]
    found = {s.visit_id: s for s in series_samples(small_cohort([*visits, other], events), "mortality")[1]}
    assert (found[1].label if 1 in found else None) == label and found[2].prediction_time == START + 2 * DAY


def test_readmission_and_death_after_discharge():
    end = START + DAY
    visits = [(p, p, START, end, None) for p in (1, 2, 3, 4)] + [(1, 9, end + 30 * DAY, end + 40 * DAY, None)]
    visits += [(5, 5, START, end, end)]
    events = [(p, p, "VITAL/ph", START, START, 7.0) for p in (1, 2, 3, 4, 5)]
    events += [(2, None, "MEDS_DEATH", end + 30 * DAY), (3, None, "MEDS_DEATH", end + 31 * DAY)]
    samples = series_samples(small_cohort(visits, events), "readmission")[1]
    # 3 and 4 are censored: a death after the window tells of no readmission in it; 5 died in hospital
    assert {s.visit_id: s.label for s in samples} == {1: 1, 2: 1}


@pytest.mark.parametrize("hours, label", [(71, 0), (72, 1), (7 * 24, 2), (14 * 24 - 1, 2), (14 * 24, 3)])
def test_los_classes(hours, label):
    cohort = small_cohort(
        [(1, 1, START, START + timedelta(hours=hours), None)], [(1, 1, "VITAL/ph", START, START, 7.0)]
    )
    for leakage, at in (("paper", timedelta(hours=hours)), ("strict", DAY)):
        [sample] = series_samples(cohort, "los", leakage=leakage)[1]
        assert sample.label == label and sample.prediction_time == START + at


def test_bad_requests():
    cohort = small_cohort([(1, 1, START, START + DAY, None)], [(1, 1, "VITAL/ph", START, START, 7.0)])
    with pytest.raises(BadInput, match="has no sample"):
        series_samples(cohort, "mortality")
    for options in ({"task": "sepsis"}, {"task": "los", "leakage": "some"}):
        with pytest.raises(BadInput, match="choose"):
            series_samples(cohort, **options)
    with pytest.raises(BadInput, match="must be 1 or more"):
        series_samples(cohort, "los", step_hours=0)
    with pytest.raises(BadInput, match="each only once"):
        series_samples(cohort, "los", features=("VITAL/ph", "VITAL/ph"))


@pytest.fixture(scope="module")
def icu_rows(shared_data) -> dict[str, tuple[pl.DataFrame, dict]]:
    """ICU stays of both demos in time order, from the files, with the death in their hospital stay; last deaths."""
    found = {}
    for name, icu, hosp in (
        ("mimic3", "mimic-iii-demo-1.4/ICUSTAYS", "mimic-iii-demo-1.4/ADMISSIONS"),
        ("mimic4", "mimic-iv-demo-2.2/icu/icustays", "mimic-iv-demo-2.2/hosp/admissions"),
    ):
        stays, visits = (pl.read_csv(shared_data / f"{path}.csv.gz", try_parse_dates=True) for path in (icu, hosp))
        people = {"mimic3": "mimic-iii-demo-1.4/PATIENTS", "mimic4": "mimic-iv-demo-2.2/hosp/patients"}[name]
        dod = pl.read_csv(shared_data / f"{people}.csv.gz", try_parse_dates=True).select(
            "subject_id", dod=pl.col("dod").cast(pl.Datetime("us")).dt.truncate("1d") + timedelta(seconds=86399)
        )
        inside = visits.filter(hospital_expire_flag=1).group_by("subject_id").agg(pl.col("deathtime").max())
        deaths = dod.join(inside, on="subject_id", how="left").select("subject_id", pl.coalesce("deathtime", "dod"))
        deaths = deaths.drop_nulls()
        visits = visits.select("hadm_id", "admittime", "deathtime", died=pl.col("hospital_expire_flag"))
        stays = stays.join(visits, on="hadm_id").sort("subject_id", "admittime", "intime")
        found[name] = stays, dict(deaths.iter_rows())
    return found


@pytest.mark.parametrize("source", ["mimic3", "mimic4"])
def test_icu_stays_of_the_demos(source, request, icu_rows):
    raw = icu_rows[source][0]
    stays = icu_stays(request.getfixturevalue(f"{source}_cohort"))
    assert (
        stays.select("subject_id", "visit_id", "start", "end").rows()
        == raw.select("subject_id", "hadm_id", "intime", "outtime").rows()
    )


# mortality, readmission, los, the rest of los; days of an ICU stay are 4.5 and 3.7 on average (Table 5: 3.7 to 3.8).
ICU_COUNTS = {
    "mimic3": ({0: 46, 1: 26}, {0: 18, 1: 36}, {0: 91, 1: 20, 2: 15, 3: 10}, {0: 75, 1: 17, 2: 9, 3: 10}),
    "mimic4": ({0: 62, 1: 12}, {0: 19, 1: 27}, {0: 85, 1: 35, 2: 15, 3: 5}, {0: 76, 1: 25, 2: 11, 3: 5}),
}


@pytest.mark.parametrize("source", ["mimic3", "mimic4"])
def test_labels_on_icu_stays_of_the_demos(source, request, icu_rows):
    cohort, (raw, last_death) = request.getfixturevalue(f"{source}_cohort"), icu_rows[source]
    wanted: list[dict[int, int]] = [{}, {}, {}, {}]
    following = raw.select(pl.col("intime").shift(-1).over("subject_id"))["intime"]

    def count(task, label):
        wanted[task][label] = wanted[task].get(label, 0) + 1

    def los(days):
        return sum(days >= limit for limit in (3, 7, 14))

    for row, coming in zip(raw.iter_rows(named=True), following, strict=True):
        start, end, dead = row["intime"], row["outtime"], row["deathtime"] if row["died"] else None
        hours = (end - start) / HOUR
        if hours >= 48 and not (dead and dead <= start + 48 * HOUR):
            count(0, row["died"])
        death = last_death.get(row["subject_id"])
        dies = death is not None and end <= death <= end + 30 * DAY
        if not (dead and dead <= end) and (coming is None or coming >= end) and (coming or dies):
            back = coming is not None and coming - end <= 30 * DAY
            count(1, int(back or dies))
        count(2, los(hours / 24))
        if hours >= 24 and not (dead and dead < start + 24 * HOUR):  # three of MIMIC-III were dead by then
            count(3, los(hours / 24 - 1))
    tasks = (("mortality", "total"), ("readmission", "total"), ("los", "total"), ("los", "remaining"))
    found = [
        dict(series_labels(cohort, task, stay="icu", los=los)["label"].value_counts().rows()) for task, los in tasks
    ]
    assert found == wanted == [dict(sorted(counts.items())) for counts in ICU_COUNTS[source]]


def test_pairing_of_icu_admissions_and_discharges():
    day, end = DAY, START + 9 * DAY
    events = [
        (1, 1, "ICU_ADMISSION/A", START),
        (1, 1, "ICU_DISCHARGE", START + day),
        (1, 1, "ICU_ADMISSION/B", START + day),  # moved on at once
        (1, 1, "ICU_ADMISSION/A", START + 3 * day),  # the end of B is not known
        (1, 1, "ICU_DISCHARGE", START + 5 * day),
        (1, None, "ICU_DISCHARGE", START + 6 * day),
        (2, 2, "ICU_ADMISSION//A", START),
        (3, 3, "ICU_ADMISSION/A", START),
        (3, 3, "ICU_DISCHARGE", START),  # a stay of no length
    ]
    cohort = small_cohort([(1, 1, START, end, None), (2, 2, START, end, end), (3, 3, START, end, None)], events)
    assert icu_stays(cohort).select("visit_id", "start", "end", "died").rows() == [
        (1, START, START + day, False),
        (1, START + day, None, False),
        (1, START + 3 * day, START + 5 * day, False),
        (2, START, None, True),
        (3, START, START, False),
    ]
    with pytest.raises(BadInput, match="knows of no ICU stay"):
        icu_stays(small_cohort([(1, 1, START, end, None)], events[1:2]))


@pytest.mark.slow
def test_questions_name_the_stay(mimic4_cohort, eicu_cohort):
    heart = ("LAB/50912",), ("VITAL/mean blood pressure",)
    asked = {
        (source.stay, task, stay): series_samples(source, task, features=features, stay=stay)[0].question
        for source, features in zip((mimic4_cohort, eicu_cohort), heart, strict=True)
        for task in TASKS
        for stay in ("visit", "icu")
    }
    assert (
        asked["hospital", "los", "visit"] == TASKS["los"].question
        and "this ICU stay" in asked["hospital", "los", "icu"]
    )
    assert "return to an ICU or die" in asked["hospital", "readmission", "icu"]
    assert "this hospital stay" in asked["hospital", "mortality", "icu"]  # death in the hospital, seen from the ICU
    for task in sorted(set(TASKS) - {"dec"}):  # the next 24 hours are the same wherever the patient lies
        assert asked["ICU", task, "visit"] == asked["ICU", task, "icu"] and "ICU" in asked["ICU", task, "icu"]


@pytest.mark.parametrize("days, label", [(3.9, 0), (4, 1), (8, 2), (15, 3), (0.9, None)])
def test_the_rest_of_the_stay(days, label):
    cohort = small_cohort(
        [(1, 1, START, START + days * DAY, None), (2, 2, START, START + DAY, None)],
        [(p, p, "VITAL/ph", START, START, 7.0) for p in (1, 2)],
    )
    for leakage in ("paper", "strict"):
        samples = {s.visit_id: s for s in series_samples(cohort, "los", los="remaining", leakage=leakage)[1]}
        assert (samples[1].label if 1 in samples else None) == label
        assert all(s.prediction_time == START + DAY and s.history.values.shape[0] == 1 for s in samples.values())


def test_hourly_decompensation_and_48_hours_of_the_benchmark(mimic3_cohort, shared_data):
    """On the open MIMIC-III demo; stays, hours and deaths counted again from its files by the benchmark's rules."""
    root = shared_data / "mimic-iii-demo-1.4"
    stays, admissions, people = (
        pl.read_csv(root / f"{name}.csv.gz", try_parse_dates=True) for name in ("ICUSTAYS", "ADMISSIONS", "PATIENTS")
    )
    stays = stays.filter(
        pl.col("first_wardid") == pl.col("last_wardid"), pl.col("first_careunit") == pl.col("last_careunit")
    ).filter(pl.len().over("hadm_id") == 1)
    stays = stays.join(admissions.drop("subject_id", "row_id"), on="hadm_id").join(
        people.drop("row_id"), on="subject_id"
    )
    years = pl.col("intime").dt.year() - pl.col("dob").dt.year()
    stays = stays.filter((years >= 18) | (years < 0))
    hours = positives = 0
    for row in stays.iter_rows(named=True):
        dead = row["deathtime"] is not None and row["admittime"] <= row["deathtime"] <= row["dischtime"]
        length = (row["outtime"] - row["intime"]) / HOUR
        lived = (row["deathtime"] - row["intime"]) / HOUR if dead else float("inf")
        times = range(5, int(min(length, lived)) + 1)
        hours, positives = hours + len(times), positives + sum(lived - t < 24 for t in times)
    labels = series_labels(mimic3_cohort, "dec", stay="benchmark")
    assert benchmark_stays(mimic3_cohort).height == 114
    assert (labels.height, labels["label"].sum()) == (10_863, 456)
    assert (stays.height, hours, positives) == (114, 10_863, 456)
    two_days = series_labels(mimic3_cohort, "mortality", stay="benchmark")
    assert (two_days.height, two_days["label"].sum()) == (57, 17)


@pytest.mark.slow
def test_an_hourly_sample_shows_the_stay_so_far(mimic3_cohort):
    for leakage in ("paper", "strict"):
        task, samples = series_samples(mimic3_cohort, "dec", leakage=leakage, stay="benchmark")
        assert task.name == "series-dec" and all(s.history.values.shape == (len(s.history.hours), 17) for s in samples)
        assert all(s.history.hours[-1] == len(s.history.hours) >= 5 and s.history.observed.any() for s in samples)
        some = samples[::40]
        assert audit(mimic3_cohort, some).is_empty() is (leakage == "strict")
        events = mimic3_cohort.events
        for sample in some[::10]:
            rows = np.unique(sample.history.source[sample.history.source >= 0])
            assert max(events["time"].gather(rows)) <= sample.prediction_time


def test_the_benchmarks_stays_need_wards(cohort):
    with pytest.raises(BadInput, match=r"tell nothing of wards"):
        series_labels(cohort, "dec", stay="benchmark")
