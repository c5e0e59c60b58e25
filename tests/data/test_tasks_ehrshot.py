"""EHRSHOT's tasks: labels counted again from the demo's files, thresholds, exclusions, what each mode shows."""

from datetime import datetime, timedelta

import polars as pl
import pytest

from ghar.data.readers.meds_labels import read_labels
from ghar.data.tasks.ehrshot import TASKS, descendants, ehrshot_labels
from ghar.errors import BadInput
from tests.data.audit import audit, ehrshot_samples
from tests.data.small import DAY, HOUR, START, balance, small_cohort

pytestmark = pytest.mark.slow

EVENING = START.replace(hour=23, minute=59, second=59)
LAST_SECOND = timedelta(hours=23, minutes=59, seconds=59)


@pytest.fixture(scope="module")
def cohort(meds_cohort):
    """The demo as a MEDS folder, read back."""
    return meds_cohort


@pytest.fixture(scope="module")
def record(demo):
    """First and last time of each patient in the files themselves: {patient: (first, last)}."""
    columns = {"admissions": ("admittime", "dischtime"), "labevents": ("charttime",), "prescriptions": ("starttime",)}
    columns |= {"procedures_icd": ("chartdate",), "../icu/icustays": ("intime", "outtime")}
    times = []
    for name, wanted in columns.items():
        frame = pl.read_csv(demo / f"hosp/{name}.csv.gz", infer_schema=False)
        for column in wanted:
            at = (pl.col(column) + " 00:00:00").str.slice(0, 19).str.to_datetime("%Y-%m-%d %H:%M:%S")
            times.append(frame.select(pl.col("subject_id").cast(int), at=at))
    spans = pl.concat(times).drop_nulls().group_by("subject_id").agg(first=pl.col("at").min(), last=pl.col("at").max())
    return {subject: (first, last) for subject, first, last in spans.iter_rows()}


def found(cohort, task):
    labels, left_out = ehrshot_labels(cohort, task)
    counts = dict(labels.group_by("label").len().sort("label").rows())
    return counts, left_out


def test_long_stays_of_the_demo(cohort, demo_admissions):
    stays = demo_admissions.filter(pl.col("admittime").dt.date() != pl.col("dischtime").dt.date())
    long = stays.filter(pl.col("dischtime") - pl.col("admittime") >= pl.duration(days=7)).height
    counts, left_out = found(cohort, "guo_los")
    assert counts == {0: stays.height - long, 1: long} == {0: 170, 1: 92} and left_out == {"same_day": 13}


def test_readmissions_of_the_demo(cohort, record, demo_admissions):
    by_patient = demo_admissions.partition_by("subject_id")
    counts, same_day, censored = {0: 0, 1: 0}, 0, 0
    for stays in by_patient:
        times = stays.select("admittime", "dischtime").rows()
        for i, (_, out) in enumerate(times):
            at = out.replace(hour=0, minute=0, second=0) + LAST_SECOND
            others = [start for j, (start, _) in enumerate(times) if j != i]
            end = record[stays["subject_id"][0]][1]
            if any(start.date() == out.date() for start in others):
                same_day += 1
            elif any(timedelta(minutes=1) <= start - at <= 30 * DAY for start in others):
                counts[1] += 1
            elif end < at + 30 * DAY:
                censored += 1
            else:
                counts[0] += 1
    assert found(cohort, "guo_readmission") == (counts, {"same_day": same_day, "censored": censored})
    assert counts == {0: 142, 1: 50} and (same_day, censored) == (3, 80)


def test_infarctions_of_the_demo(cohort, demo, demo_admissions):
    codes = pl.read_csv(demo / "hosp/diagnoses_icd.csv.gz", schema_overrides={"icd_code": pl.String})
    code, version = pl.col("icd_code"), pl.col("icd_version")
    acute = ((version == 9) & code.str.starts_with("410")) | ((version == 10) & code.str.contains("^I2[12]"))
    attacks = codes.filter(acute).join(demo_admissions, on="hadm_id").select("subject_id", attack="dischtime")
    counts, known, dead = {0: 0, 1: 0}, 0, 0
    columns = "subject_id", "dischtime", "hospital_expire_flag"
    for subject, out, died in demo_admissions.select(columns).rows():
        at = out.replace(hour=0, minute=0, second=0) + LAST_SECOND
        times = attacks.filter(subject_id=subject)["attack"].to_list()
        if times and at > min(times):
            known += 1
        elif died:
            dead += 1  # the benchmark's rule asks on the evening of the death about the next year
        else:
            counts[any(DAY <= t - at <= 365 * DAY for t in times)] += 1
    assert found(cohort, "new_acutemi") == (counts, {"known": known, "after_death": dead})
    assert counts == {0: 220, 1: 5} and known == 39 and dead == 11


def test_anaemia_of_the_demo(cohort, demo, record):
    labs = pl.read_csv(demo / "hosp/labevents.csv.gz", infer_schema=False)
    labs = labs.filter(pl.col("itemid").is_in(["50811", "51222", "51640"]) & pl.col("valuenum").is_not_null())
    labs = labs.with_columns(
        pl.col("subject_id").cast(int), pl.col("charttime").str.to_datetime(), grams=pl.col("valuenum").cast(float) * 10
    )
    seen, counts = set(), {0: 0, 1: 0, 2: 0, 3: 0}
    for subject, at, grams in (
        labs.sort("charttime", maintain_order=True).select("subject_id", "charttime", "grams").rows()
    ):
        if at > record[subject][0] and (subject, at) not in seen:
            seen.add((subject, at))
            grams = round(grams, 3)
            counts[3 if grams < 70 else 2 if grams < 110 else 1 if grams < 120 else 0] += 1
    labels, left_out = found(cohort, "lab_anemia")
    # Of two results of one minute the first of the file counts; 8 such pairs.
    assert labels == counts == {0: 553, 1: 328, 2: 1876, 3: 118} and left_out["repeated"] == 8
    assert left_out["repeated with another label"] == 3


@pytest.mark.parametrize("task", list(TASKS))
def test_what_the_demo_shows(cohort, task):
    about, paper = ehrshot_samples(cohort, task)
    strict = ehrshot_samples(cohort, task, leakage="strict")[1]
    assert balance(paper) == balance(strict) == found(cohort, task)[0] and about.name == task
    if task == "lab_anemia":  # thousands of samples
        paper, strict = paper[::9], strict[::9]
    assert audit(cohort, strict).is_empty() and audit(cohort, paper).height > 0
    for wide, narrow in zip(paper, strict, strict=True):
        assert wide.history["time"].max() <= wide.prediction_time
        assert set(wide.history["subject_id"]) == {wide.subject_id}
        assert narrow.history.height <= wide.history.height


def test_the_benchmarks_own_labels(cohort, tmp_path):
    labels = ehrshot_labels(cohort, "guo_los")[0].rename({"label": "boolean_value"})
    labels.with_columns(pl.col("boolean_value").cast(pl.Boolean)).write_parquet(tmp_path / "labels.parquet")
    samples = ehrshot_samples(cohort, "guo_los", labels=read_labels(tmp_path / "labels.parquet"))[1]
    assert balance(samples) == found(cohort, "guo_los")[0]
    with pytest.raises(BadInput, match="is not 0 to 1"):
        ehrshot_samples(cohort, "guo_los", labels=labels.with_columns(label=pl.lit(2)))
    with pytest.raises(BadInput, match="must be boolean or integer"):
        ehrshot_samples(cohort, "guo_los", labels=labels.rename({"boolean_value": "float_value"}))
    with pytest.raises(BadInput, match="no event"):
        ehrshot_samples(cohort, "guo_los", labels=labels.with_columns(subject_id=pl.lit(5)))


@pytest.mark.parametrize("stay, label", [(7 * DAY, 1), (7 * DAY - HOUR, 0), (11 * HOUR, None), (13 * HOUR, 0)])
def test_guo_los(stay, label):
    rows = ehrshot_labels(small_cohort([(1, 1, START, START + stay, None)]), "guo_los")[0].rows()
    assert rows == ([] if label is None else [(1, EVENING, label)])


@pytest.mark.parametrize(
    "next_start, followed, label",
    [
        (EVENING + timedelta(minutes=1), 1, 1),
        (EVENING + 30 * DAY, 1, 1),
        (EVENING + 30 * DAY + timedelta(seconds=1), 1, 0),
        (START + 2 * HOUR, 90, None),  # readmitted on the day of the discharge
        (None, 29, None),  # censored
        (None, 31, 0),
    ],
)
def test_guo_readmission(next_start, followed, label):
    visits = [(1, 1, START - DAY, START, None)]
    if next_start:
        visits.append((1, 2, next_start, next_start + 2 * DAY, None))
    cohort = small_cohort(visits, [(1, None, "LAB/1", START + followed * DAY)])
    rows = [row[2] for row in ehrshot_labels(cohort, "guo_readmission")[0].rows() if row[1] == EVENING]
    assert rows == ([] if label is None else [label])


@pytest.mark.parametrize(
    "attack, label",
    [
        (None, 0),  # also where the record ends: the censored are negative
        (EVENING - HOUR, None),
        (EVENING + HOUR, 0),  # within the first day: neither known before nor in 1..365 days
        (EVENING + DAY, 1),
        (EVENING + 365 * DAY, 1),
        (EVENING + 366 * DAY, 0),
    ],
)
def test_new_acutemi(attack, label):
    parents = {"SNOMED/57054005": [], "SNOMED/401303003": ["SNOMED/57054005"], "X/1": ["SNOMED/401303003"]}
    events = [(1, None, "LAB/1", START)] + ([(1, None, "X/1", attack)] if attack else [])
    cohort = small_cohort([(1, 1, START - DAY, START, None)], events, parents)
    assert descendants(cohort.codes, "SNOMED/57054005") == set(parents)
    rows = ehrshot_labels(cohort, "new_acutemi")[0].rows()
    assert rows == ([] if label is None else [(1, EVENING, label)])


def test_lab_anemia_thresholds_and_units():
    levels = [(69.9, 3), (70.0, 2), (109.0, 2), (110.0, 1), (119.9, 1), (120.0, 0)]
    for unit, factor in (("g/L", 1.0), ("g/dL", 0.1), ("mg/dL", 100.0)):
        events = [(1, None, "LOINC/718-7", START + i * HOUR, START, v * factor) for i, (v, _) in enumerate(levels, 1)]
        cohort = small_cohort([], [(1, None, "X", START), *events], unit=[None] + [unit] * len(levels))
        labels = ehrshot_labels(cohort, "lab_anemia")[0]
        assert labels["label"].to_list() == [label for _, label in levels]
        assert labels["prediction_time"][0] == START + HOUR - timedelta(minutes=1)


def test_lab_anemia_exclusions():
    def lab(code, hours, number=None, text=None):
        return (1, None, code, START + hours * HOUR, START, number, text)

    events = [
        lab("LAB/51222", 0, 9.0),  # the first thing that is known of the patient
        lab("LAB/51222", 1, 9.0),
        lab("LOINC/718-7", 2, 9.0),  # no unit
        lab("LAB/50811", 3, None, "___"),
        lab("LAB/50811", 4, None, "12.5"),
        lab("LOINC/718-7", 5, None, "Adequate"),
        lab("LAB/50811", 5, 3.0),
    ]
    labels, left_out = ehrshot_labels(small_cohort([], events), "lab_anemia")
    assert labels["label"].to_list() == [2, 0, 0]
    assert left_out == {"first_event": 1, "no_value": 1, "no_unit": 1, "repeated": 1, "repeated with another label": 1}


def test_what_is_shown_ends_at_the_prediction_time():
    at = EVENING
    events = [
        (1, None, "SEX", None),
        (1, 1, "LAB/1", at),
        (1, 1, "LAB/2", at, at + HOUR),  # drawn before, stored after
        (1, 1, "LAB/3", at + timedelta(seconds=1)),
        (2, 2, "LAB/4", START),
    ]
    cohort = small_cohort([(1, 1, START, START + 3 * DAY, None), (2, 2, START, START, None)], events)
    [paper], [strict] = (ehrshot_samples(cohort, "guo_los", leakage=mode)[1] for mode in ("paper", "strict"))
    assert paper.history["code"].to_list() == ["SEX", "LAB/1", "LAB/2"]
    assert strict.history["code"].to_list() == ["SEX", "LAB/1"]
    assert audit(cohort, [paper]).select("code", "recorded").rows() == [("LAB/2", at + HOUR)]


def test_bad_requests():
    cohort = small_cohort([(1, 1, START, datetime(2150, 1, 1, 13), None)])
    with pytest.raises(BadInput, match="has no sample"):
        ehrshot_samples(cohort, "guo_los")
    for task, leakage in (("guo_icu", "paper"), ("guo_los", "some")):
        with pytest.raises(BadInput, match="choose"):
            ehrshot_samples(cohort, task, leakage=leakage)
