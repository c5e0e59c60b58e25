"""Four tasks of the EHRSHOT benchmark (Wornow et al. 2023), as EHR-RAG uses them, on any cohort with visits.

task             predicted at                  positive when                         left out (counted)
guo_los          23:59:59, day of admission    the stay lasts 7 days or longer       same_day: discharged that day
guo_readmission  23:59:59, day of discharge    an inpatient admission after 1        same_day: another admission that
                                               minute to 30 days                     day; censored: no outcome and the
                                                                                     record ends before 30 days
new_acutemi      23:59:59, day of discharge    a diagnosis of acute myocardial       known: diagnosed by then
                                               infarction after 1 to 365 days (the
                                               censored are negative)
lab_anemia       1 minute before a result      its haemoglobin in g/L: below 70      first_event: at the first time of
                 of haemoglobin                severe (3), below 110 moderate (2),   the record; no_unit, no_value:
                                               below 120 mild (1), else none (0);    cannot be read
                                               "normal" and "adequate": none

A birth (MEDS_BIRTH) begins no record and a death after the discharge prolongs none (`_contacts`). Nothing is predicted
of the dead ("after_death"): the benchmark's rule would ask on the evening of an in-hospital death about the next year.
Stays without a known end are "no_end" everywhere but in lab_anemia. Predictions of one patient at one time are one
("repeated"), the first of the source; "repeated with another label" counts the times at which they differ. Acute
myocardial infarction is SNOMED 57054005 with its descendants (parents in the table of codes), and for sources that
code in ICD 410 (ICD-9-CM) or I21, I22 (ICD-10-CM). Haemoglobin is LOINC LP392452-1 with its descendants and LOINC
718-7, with the unit of the column `unit`, and MIMIC's LAB/50811, 51222 and 51640, in g/dL.
For guo_readmission the benchmark's text leaves out all readmissions of the same day, its code only discharges on whose
day an earlier stay began: here both.

Refused for a cohort whose visits have groups (eICU): every task here compares times of different hospital stays of a
patient, which have no known order there (trap 7).

One rule for labels and samples: what has a time up to and including the prediction time was there, as MEDS defines it;
a label counts only what comes later. leakage="paper" shows every such event, "strict" those that were also recorded by
then (a lab drawn before and stored after it is not shown). Static facts are always shown. EHR-RAG's event store
(ghar/retrieval/event_store.py) keeps to this rule, and for these tasks shows no event before it was known in any mode.
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Literal

import polars as pl

from ghar.data.cohort import Cohort, Task
from ghar.data.ranges import subject_ranges
from ghar.data.readers.deaths import DEATH, WHOLE_DAY, is_date, sound_deaths
from ghar.errors import BadInput

EhrshotTask = Literal["guo_los", "guo_readmission", "new_acutemi", "lab_anemia"]
MINUTE, DAY = timedelta(minutes=1), timedelta(days=1)
LONG_STAY, SOON, YEAR = 7 * DAY, 30 * DAY, 365 * DAY
LIFE = "^MEDS_(BIRTH|DEATH)"
LAST_SECOND = timedelta(hours=23, minutes=59, seconds=59)
INFARCTION, INFARCTION_ICD = "SNOMED/57054005", r"^(ICD9CM/410|ICD10CM/I2[12])"
HAEMOGLOBIN = ("LOINC/LP392452-1", "LOINC/718-7", "LAB/Hgb")  # the last is eICU's
IN_G_DL = ("LAB/50811", "LAB/51222", "LAB/51640")
TO_G_L = {"g/dl": 10.0, "mg/dl": 0.01, "g/l": 1.0}  # unit (lower case) -> grams a litre
TASKS: dict[str, Task] = {
    "guo_los": Task("guo_los", "Will this hospital stay last seven days or longer?", ("no", "yes")),
    "guo_readmission": Task(
        "guo_readmission", "Will this patient be readmitted to the hospital within 30 days of discharge?", ("no", "yes")
    ),
    "new_acutemi": Task(
        "new_acutemi", "Will this patient have a first acute myocardial infarction within one year?", ("no", "yes")
    ),
    "lab_anemia": Task(
        "lab_anemia",
        "How severe is the anaemia in the next haemoglobin result?",
        ("none", "mild", "moderate", "severe"),
    ),
}
Labels = tuple[pl.DataFrame, dict[str, int]]


def ehrshot_labels(cohort: Cohort, task: EhrshotTask) -> Labels:
    """subject_id, prediction_time, label in order of both, and how many candidates each rule left out."""
    check_order(cohort)
    if task == "guo_los":
        rows, left_out = _long_stay(cohort)
    elif task == "guo_readmission":
        rows, left_out = _readmission(cohort)
    elif task == "new_acutemi":
        rows, left_out = _infarction(cohort)
    elif task == "lab_anemia":
        rows, left_out = _anaemia(cohort)
    else:
        raise BadInput(f"There is no EHRSHOT task {task!r}: choose {', '.join(TASKS)}.")
    rows = rows.select("subject_id", "prediction_time", pl.col("label").cast(pl.Int64))
    rows, left_out["after_death"] = before_death(rows, cohort)
    by_time = rows.group_by("subject_id", "prediction_time", maintain_order=True)
    once = by_time.agg(pl.col("label").first(), others=pl.col("label").n_unique() - 1)
    left_out["repeated"] = rows.height - once.height
    left_out["repeated with another label"] = int((once["others"] > 0).sum())  # among these, at so many times
    once = once.drop("others")
    return once.sort("subject_id", "prediction_time"), {rule: n for rule, n in left_out.items() if n}


def before_death(rows: pl.DataFrame, cohort: Cohort) -> tuple[pl.DataFrame, int]:
    """The rows whose prediction_time is not after the patient's death, and how many others there were.

    The death is the one in a stay, or MEDS_DEATH; one that contradicts later stays is none (`sound_deaths`).
    """
    death_events = cohort.scan().filter(pl.col("code").str.starts_with(DEATH)).select("subject_id", "time")
    inside = cohort.visits.filter("died").select("subject_id", time="death_time")
    deaths = sound_deaths(pl.concat([death_events.collect(engine="streaming"), inside]), cohort.visits)[0]
    late = pl.when(is_date()).then(pl.col("time") + WHOLE_DAY).otherwise("time")
    first = deaths.with_columns(time=late).group_by("subject_id").agg(_death=pl.min("time"))
    rows_with_death = rows.join(first, on="subject_id", how="left", maintain_order="left")
    kept = rows_with_death.filter((pl.col("prediction_time") <= pl.col("_death")).fill_null(True)).drop("_death")
    return kept, rows.height - kept.height


def require_labels(labels: pl.DataFrame, cohort: Cohort, task: str) -> None:
    """Raises BadInput where a task has no label."""
    if labels.is_empty():
        raise BadInput(f"Task {task} has no sample in the {cohort.name}: it needs more or longer-followed patients.")


def descendants(codes: pl.DataFrame, *roots: str) -> set[str]:
    """`roots` and every code below them, by the parents in `Cohort.codes`."""
    edges = codes.select("code", pl.col("parents").alias("parent")).explode("parent").drop_nulls()
    children: dict[str, list[str]] = {}
    for code, parent in edges.iter_rows():
        children.setdefault(parent, []).append(code)
    members, waiting = set(roots), list(roots)
    while waiting:
        for child in children.get(waiting.pop(), []):
            if child not in members:
                members.add(child)
                waiting.append(child)
    return members


def check_order(cohort: Cohort) -> None:
    """Raises BadInput for a source that does not tell how the hospital stays of a patient follow each other."""
    if "group" in cohort.visits.columns:
        raise BadInput(
            f"The {cohort.name} have no order of hospital stays, which EHRSHOT's tasks and label files need: use los, "
            "read, dec, kare_mortality, los_24h or mortality_24h."
        )


def label_indices(labels: pl.DataFrame, about: Task) -> pl.DataFrame:
    """subject_id, prediction_time, label in order of both, from whichever value column a label file has.

    Raises BadInput for values that are no labels of the task.
    """
    if "label" in labels.columns:
        value = pl.col("label")
    elif "boolean_value" in labels.columns:
        value = pl.col("boolean_value").cast(pl.Int64)
    elif "integer_value" in labels.columns:
        value = pl.col("integer_value")
    else:
        raise BadInput(f"Labels of {about.name} must be boolean or integer, not {', '.join(labels.columns[2:])}.")
    counted = labels.select("subject_id", "prediction_time", label=value.cast(pl.Int64))
    if not counted["label"].is_between(0, len(about.labels) - 1).fill_null(False).all():
        raise BadInput(
            f"A label of {about.name} is not 0 to {len(about.labels) - 1}: is it the label file of that task?"
        )
    return counted.sort("subject_id", "prediction_time")


def _end_of_day(time: pl.Expr) -> pl.Expr:
    return time.dt.truncate("1d") + LAST_SECOND


def _ended(cohort: Cohort) -> tuple[pl.DataFrame, dict[str, int]]:
    visits = cohort.visits.filter(pl.col("end").is_not_null())
    return visits, {"no_end": cohort.visits.height - visits.height}


def _long_stay(cohort: Cohort) -> Labels:
    visits, left_out = _ended(cohort)
    rows = visits.filter(pl.col("start").dt.date() != pl.col("end").dt.date()).with_columns(
        prediction_time=_end_of_day(pl.col("start")), label=pl.col("end") - pl.col("start") >= LONG_STAY
    )
    return rows, left_out | {"same_day": visits.height - rows.height}


def _readmission(cohort: Cohort) -> Labels:
    visits, left_out = _ended(cohort)
    admissions = cohort.visits.select("subject_id", "visit_id", admitted="start")
    at = visits.select("subject_id", "visit_id", prediction_time=_end_of_day(pl.col("end")))
    pairs = at.join(admissions, on="subject_id", suffix="_other")
    others = pairs.filter(pl.col("visit_id") != pl.col("visit_id_other"))
    same_day = others.filter(pl.col("admitted").dt.date() == pl.col("prediction_time").dt.date())
    rows = at.join(same_day, on="visit_id", how="anti")
    after = pl.col("admitted") - pl.col("prediction_time")
    soon = pairs.filter(after.is_between(MINUTE, SOON)).select("visit_id").unique().with_columns(label=True)
    followed = rows.join(soon, on="visit_id", how="left").join(_record_ends(cohort), on="subject_id", how="left")
    kept = followed.filter(pl.col("label") | (pl.col("last") >= pl.col("prediction_time") + SOON))
    left_out |= {"same_day": at.height - rows.height, "censored": rows.height - kept.height}
    return kept.with_columns(pl.col("label").fill_null(False)), left_out


def _infarction(cohort: Cohort) -> Labels:
    visits, left_out = _ended(cohort)
    every = pl.concat([cohort.codes["code"], cohort.codes["parents"].list.explode().drop_nulls()]).unique()
    roots = [INFARCTION, *every.filter(every.str.contains(INFARCTION_ICD))]
    below = descendants(cohort.codes, *roots)
    coded = pl.col("code").is_in(list(below))
    timed = cohort.scan().filter(coded & pl.col("time").is_not_null())
    attacks = timed.select("subject_id", attack="time").collect(engine="streaming")
    rows = visits.with_columns(prediction_time=_end_of_day(pl.col("end")))
    first = attacks.group_by("subject_id").agg(pl.col("attack").min().alias("first"))
    rows = rows.join(first, on="subject_id", how="left")
    # a diagnosis at the prediction time is shown, so it is known: the same rule as for what a sample shows
    kept = rows.filter((pl.col("prediction_time") < pl.col("first")).fill_null(True))
    delay = pl.col("attack") - pl.col("prediction_time")
    hits = kept.join(attacks, on="subject_id").filter(delay.is_between(DAY, YEAR)).select("visit_id").unique()
    label = pl.col("visit_id").is_in(hits["visit_id"].implode())
    return kept.with_columns(label=label), left_out | {"known": rows.height - kept.height}


def _anaemia(cohort: Cohort) -> Labels:
    below = descendants(cohort.codes, *HAEMOGLOBIN, *IN_G_DL)
    is_result = pl.col("code").is_in(list(below)) & ~pl.col("code").str.starts_with("SPECIMEN/")
    begins = _contacts(cohort).group_by("subject_id").agg(begin=pl.col("time").min()).collect(engine="streaming")
    wanted = ["subject_id", "time", "code", "numeric_value", "text_value"]
    wanted += [name for name in ("unit",) if name in cohort.scan().collect_schema()]  # of a MEDS folder
    parts = [pl.DataFrame(schema={"subject_id": pl.Int64, "prediction_time": pl.Datetime("us"), "label": pl.Int64})]
    left_out: Counter[str] = Counter()
    for part in subject_ranges(cohort.scan()):  # a few in a hundred events, but with words and units
        results = part.of(cohort.scan()).filter(is_result & pl.col("time").is_not_null())
        rows, rules = _graded(results.select(wanted).collect(engine="streaming"), begins)
        parts.append(rows.select("subject_id", "prediction_time", pl.col("label").cast(pl.Int64)))
        left_out.update(rules)
    return pl.concat(parts), dict(left_out)


def _graded(results: pl.DataFrame, begins: pl.DataFrame) -> Labels:
    """A row a result that says how severe an anaemia is, and how many say it not, or begin a record."""
    results = results.join(begins, on="subject_id", how="left", maintain_order="left")
    later = results.filter(pl.col("time") > pl.col("begin"))
    words = pl.col("text_value").str.strip_chars().str.to_lowercase()
    default_unit = pl.when(pl.col("code").is_in(IN_G_DL)).then(pl.lit("g/dl"))
    unit = pl.coalesce(pl.col("unit").str.to_lowercase(), default_unit) if "unit" in results.columns else default_unit
    factor = unit.str.extract(r"^\s*(g/dl|mg/dl|g/l)").replace_strict(TO_G_L, default=None, return_dtype=pl.Float64)
    value = pl.coalesce(pl.col("numeric_value").cast(pl.Float64), words.cast(pl.Float64, strict=False))
    # As decimals: 12.0 g/dL is stored as a 32-bit float, and 120 g/L is not below 120.
    level = (value * factor).round(4)
    label = pl.when(level < 70).then(3).when(level < 110).then(2).when(level < 120).then(1).when(level >= 120).then(0)
    fine = words.is_in(["normal", "adequate"])
    rows = later.with_columns(
        prediction_time=pl.col("time") - MINUTE,
        label=pl.when(fine).then(0).otherwise(label),
        no_unit=factor.is_null() & ~fine.fill_null(False),
        no_value=value.is_null() & ~fine.fill_null(False),
    )
    left_out = {
        "first_event": results.height - later.height,
        "no_value": int(rows["no_value"].sum()),
        "no_unit": rows.filter(~pl.col("no_value") & pl.col("no_unit")).height,
    }
    return rows.filter(pl.col("label").is_not_null()), left_out


def _contacts(cohort: Cohort) -> pl.LazyFrame:
    """Events but for births and deaths: these begin and prolong no record, so that sources that write them (MEDS) and
    sources that do not (the tables of MIMIC) give the same labels."""
    return cohort.scan().filter(~pl.col("code").str.contains(LIFE))


def _record_ends(cohort: Cohort) -> pl.DataFrame:
    """The last time anything is known of each patient."""
    times = pl.concat(
        [
            _contacts(cohort).select("subject_id", last="time"),
            *(cohort.visits.lazy().select("subject_id", last=name) for name in ("start", "end")),
        ]
    )
    return times.group_by("subject_id").agg(pl.col("last").max()).collect(engine="streaming")
