"""GraphWalker's three tasks on time series of measurements (graphwalker.txt, Sections 5, B, C, K).

task         shown                                  predicted at  label
mortality    the first 48 h                         48 h          death in the stay; stays of 48 h or longer (MIMIC-III
                                                                  benchmark, Harutyunyan et al. 2019)
readmission  the stay, its last seven days          discharge     next admission, or death, within 30 days of it
dec          the stay so far, in hours              each hour     death within 24 h; from the fifth hour on, to the end
                                                                  of the stay or the death (the benchmark's, hourly)
los          paper: the stay, its last seven days   discharge     days of the stay: below 3, 3 to 7, 7 to 14, 14 or more
             strict: the first 24 h                 24 h          the same, of stays of 24 h or longer

A step is `step_hours` long (24: the paper's daily records; 1: hourly). It holds the last value of each feature in it,
else the last one before it (LOCF), also of steps that are cut off: the paper keeps seven days and says earlier ones are
summarised, not how. Choices where the paper leaves one, or contradicts itself:

stay         "visit": what a visit of the cohort is, a hospital stay in MIMIC. The default, because the definitions
             (Section C) and the prompts (Section K) speak of hospital stays and hospital discharge. "icu": its ICU
             stays, as Section B prepares the data and Table 5 counts (readmitted "to the ICU", 3.7 days on average):
             48 h, 24 h, days and the return are then those of the ICU stay; death stays death in the hospital stay.
             "benchmark": those of its ICU stays that the MIMIC-III benchmark keeps (`ghar.data.tasks.icu`).
mortality    the paper shows the whole stay, the end included; here the benchmark's window, in both modes. The
             benchmark also leaves out patients below 18 and hospital stays with several ICU stays; the paper does not
             say so, and neither is left out here.
readmission  death within 30 days counts as the prompt says, as far as the cohort knows of it: deaths in later stays and
             MEDS_DEATH events. A last stay without a death in these days is censored and left out, not negative: a
             follow-up that is known by a death months later alone would select the dying. Deaths in the
             stay and a next stay that began before the discharge are left out. Where visits have groups (eICU): the
             return to an ICU before leaving the hospital, with the last ICU stay of a hospital stay negative.
los          showing the whole stay gives the answer away by its number of steps, hence strict. los="remaining" is what
             the released code predicts: the rest of the stay, here from 24 h on and shown those 24 h, in both modes.
Which values: numbers of the stay, or of the patient in that time without a stay. leakage="paper" cuts on the time a
value was measured, "strict" also on the time it was stored (trap 4). Stays without any value are left out. The
paper takes the last visit of patients with two or more: `ghar.data.tasks.subsets.last_of_patients`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Literal

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.ranges import subject_ranges
from ghar.data.readers.vitals import VARIABLES
from ghar.data.tasks.icu import COLUMNS, benchmark_stays, icu_stays
from ghar.data.tasks.samples import TimeSeries
from ghar.data.tasks.stays import Leakage, next_return, ordered_within
from ghar.errors import BadInput

SeriesTask = Literal["mortality", "readmission", "los", "dec"]
Stay = Literal["visit", "icu", "benchmark"]
Los = Literal["total", "remaining"]
VITALS = tuple(f"VITAL/{name}" for name in VARIABLES)
FIRST_HOUR, US = 5, timedelta(microseconds=1)
DAY, TWO_DAYS, MONTH = timedelta(days=1), timedelta(days=2), timedelta(days=30)
SHOWN_DAYS = 7  # "the most recent seven days" (Section B)
LIMITS = (timedelta(days=3), timedelta(days=7), timedelta(days=14))  # of the four classes of los
TASKS: dict[SeriesTask, Task] = {
    "mortality": Task("series-mortality", "Will this patient die in this hospital stay?", ("no", "yes")),
    "readmission": Task(
        "series-readmission", "Will this patient be readmitted or die within 30 days of discharge?", ("no", "yes")
    ),
    "dec": Task("series-dec", "Will this patient die within the next 24 hours?", ("no", "yes")),
    "los": Task(
        "series-los", "How long is this hospital stay in days?", ("below 3", "3 to 7", "7 to 14", "14 or more")
    ),
}


def series_samples(
    cohort: Cohort,
    task: SeriesTask,
    *,
    leakage: Leakage = "paper",
    features: Sequence[str] = VITALS,
    step_hours: int = 24,
    last_steps: int | None = None,
    stay: Stay = "visit",
    los: Los = "total",
) -> tuple[Task, list[Sample[TimeSeries]]]:
    """The task and its samples, by patient and time; `features` are codes whose events carry numbers.

    last_steps: of a stay that is shown to its end; None is those of `SHOWN_DAYS` (mortality shows its first 48 h).
    Raises BadInput for unknown names, steps that are no positive numbers, and when there is no sample.
    """
    last_steps = -(-24 * SHOWN_DAYS // max(step_hours, 1)) if last_steps is None else last_steps
    if step_hours < 1 or last_steps < 1:
        raise BadInput(f"step_hours={step_hours} and last_steps={last_steps} must be 1 or more: correct them.")
    if len(set(features)) < len(features) or not features:
        raise BadInput("features must name at least one code and each only once: correct the list.")
    windows = series_labels(cohort, task, leakage, stay=stay, los=los)
    keep = -(-48 // step_hours) if task == "mortality" else last_steps
    samples: list[Sample[TimeSeries]] = []
    for part in subject_ranges(cohort.scan()):  # of all patients together, values may not fit in memory
        some = windows.filter(pl.col("subject_id").is_between(part.first, part.last))
        events = part.of(cohort.scan()).with_row_index("row", part.before)
        if task == "dec":
            samples += _hourly(events, some, tuple(features), leakage)
        else:
            measured = _measured(events, some, tuple(features), leakage, step_hours)
            samples += _fill(some, measured, tuple(features), TASKS[task].name, step_hours, keep)
    if not samples and task == "dec":
        raise BadInput(f"Task {TASKS[task].name} has no sample in the {cohort.name}: is anything measured in it?")
    if not samples:
        raise BadInput(f"Task {TASKS[task].name} has no sample in the {cohort.name}: are {features[0]}, ... measured?")
    return _about(cohort, task, stay, los), [replace(one, credentialed=cohort.credentialed) for one in samples]


def series_labels(
    cohort: Cohort, task: SeriesTask, leakage: Leakage = "paper", *, stay: Stay = "visit", los: Los = "total"
) -> pl.DataFrame:
    """subject_id, visit_id, window (unique), start, until (shown and predicted), label, outcome (when it is known at
    the latest); a row a stay, measured or not.

    Raises BadInput for unknown names, and for ICU stays of a cohort that knows of none.
    """
    for name, value, choices in (
        ("task", task, tuple(TASKS)),
        ("leakage", leakage, ("paper", "strict")),
        ("stay", stay, ("visit", "icu", "benchmark")),
        ("los", los, ("total", "remaining")),
    ):
        if value not in choices:
            raise BadInput(f"There is no {name}={value!r} of GraphWalker: choose {', '.join(choices)}.")
    start, end = pl.col("start"), pl.col("end")
    stays = _stays(cohort, stay).filter(end.is_not_null())
    if task == "mortality":
        alive = pl.col("death_time").is_null() | (pl.col("death_time") > start + TWO_DAYS)
        rows = stays.filter((end - start >= TWO_DAYS) & alive)
        rows = rows.with_columns(until=start + TWO_DAYS, label=pl.col("died"))
    elif task == "readmission":
        rows = _discharges(cohort, _stays(cohort, stay))
    elif task == "dec":
        rows = _hours(stays)
    else:
        early = leakage == "strict" or los == "remaining"
        rows = stays.filter(end - start >= DAY) if early else stays
        lived = pl.when("died").then("death_time")
        rows = rows.with_columns(until=start + DAY if early else pl.min_horizontal(end, lived))
        rows = rows.filter((pl.col("until") <= lived).fill_null(True))
        rest = end - (pl.col("until") if los == "remaining" else start)
        rows = rows.with_columns(label=pl.sum_horizontal(rest >= limit for limit in LIMITS))
    outcomes = {  # when the outcome is, at the latest
        "mortality": pl.coalesce(pl.when("died").then("death_time"), end),
        "readmission": end + MONTH,
        "dec": pl.col("until") + DAY,
        "los": pl.min_horizontal(end, pl.when("died").then("death_time")),
    }
    label = pl.col("label").cast(pl.Int64)
    return rows.select("subject_id", "visit_id", "window", "start", "until", label, outcome=outcomes[task])


def _hours(stays: pl.DataFrame) -> pl.DataFrame:
    """A row for each whole hour of each stay from the fifth on, as long as it lasts and the patient lives."""
    hour = timedelta(hours=1)
    lived = pl.when("died").then("death_time")
    last = (pl.min_horizontal("end", lived) - pl.col("start")).dt.total_microseconds() // (hour // US)
    rows = stays.with_columns(hour=pl.int_ranges(FIRST_HOUR, last + 1)).explode("hour").drop_nulls("hour")
    rows = rows.with_columns(until=pl.col("start") + pl.col("hour") * hour)
    dies = (lived - pl.col("until") < DAY).fill_null(False)
    return rows.with_columns(label=dies, window=pl.concat_str("window", pl.lit("-h"), "hour"))


def _stays(cohort: Cohort, stay: Stay) -> pl.DataFrame:
    """The stays the tasks are about, with `window`, their name in sample ids, and whether they end with the death."""
    ident, died = pl.col("visit_id").cast(pl.String), pl.col("died")
    if stay == "visit" or cohort.stay == "ICU":
        group = (c for c in ("group",) if c in cohort.visits.columns)
        return cohort.visits.select(*COLUMNS, *group).with_columns(window=ident, dies_there=died)
    if stay == "benchmark":
        named = pl.concat_str(ident, pl.lit("-icu"))
        return benchmark_stays(cohort).with_columns(window=named, dies_there=died)
    number = pl.int_range(pl.len()).over("visit_id") + 1
    dies = died & (pl.col("death_time") <= pl.col("end"))
    return icu_stays(cohort).with_columns(
        window=pl.concat_str(ident, pl.lit("-icu"), number), dies_there=dies.fill_null(False)
    )


def _about(cohort: Cohort, task: SeriesTask, stay: Stay, los: Los) -> Task:
    """The task, with the question for this kind of stay."""
    icu = stay != "visit" or cohort.stay == "ICU"
    if task == "mortality" and cohort.stay == "ICU":
        return replace(TASKS[task], question="Will this patient die in this ICU stay?")
    if task == "readmission" and "group" in cohort.visits.columns:
        question = "Will this patient return to an ICU within 30 days, before leaving the hospital?"
        return replace(TASKS[task], question=question)
    if task == "readmission" and icu:
        return replace(TASKS[task], question="Will this patient return to an ICU or die within 30 days of leaving it?")
    if task == "los":
        place = "ICU" if icu else "hospital"
        total, rest = f"How long is this {place} stay in days?", f"How many more days will this {place} stay last?"
        return replace(TASKS[task], question=rest if los == "remaining" else total)
    return TASKS[task]


def _discharges(cohort: Cohort, stays: pl.DataFrame) -> pl.DataFrame:
    """Live discharges with `until` and `label`: readmission or death within 30 days after them."""
    end = pl.col("end")
    coming = next_return(stays) if "group" in stays.columns else pl.col("start").shift(-1).over(ordered_within(stays))
    stays = stays.with_columns(next=coming)
    live = stays.filter(~pl.col("dies_there") & end.is_not_null() & (pl.col("next") >= end).fill_null(True))
    back = (pl.col("next") - end <= MONTH).fill_null(False)
    if "group" in stays.columns:  # a group is a whole hospital stay: its last ICU stay had no next one
        return live.with_columns(until=end, label=back)
    death_rows = cohort.scan().filter(pl.col("code").str.starts_with("MEDS_DEATH")).select("subject_id", death="time")
    seen = cohort.visits.filter("died").select("subject_id", death="death_time")
    deaths = pl.concat([death_rows.collect(engine="streaming"), seen]).group_by("subject_id").agg(pl.col("death").max())
    rows = live.join(deaths, on="subject_id", how="left", maintain_order="left")
    dies = (pl.col("death") - end).is_between(timedelta(0), MONTH).fill_null(False)
    has_outcome = pl.col("next").is_not_null() | dies  # a last stay without such a death is censored
    return rows.filter(has_outcome).with_columns(until=end, label=back | dies)


def _measured(
    events: pl.LazyFrame,
    windows: pl.DataFrame,
    features: tuple[str, ...],
    leakage: Leakage,
    step_hours: int,
    clock: Literal["time", "recorded"] = "time",
) -> pl.DataFrame:
    """window, step, feature (their numbers), value and row of the last value of each step.

    events: those of some patients, with their rows in `Cohort.events`. clock: what puts a value into its step.
    """
    numbers = {code: i for i, code in enumerate(features)}
    spans = windows.lazy().select("subject_id", "window", "start", "until", _visit="visit_id")
    at = pl.max_horizontal("time", clock)
    inside = at.is_between("start", "until")
    same = pl.col("visit_id").is_null() | (pl.col("visit_id") == pl.col("_visit"))
    stored = (pl.col("recorded") <= pl.col("until")).fill_null(False) if leakage == "strict" else pl.lit(True)
    step = (at - pl.col("start")).dt.total_microseconds() // (step_hours * 3_600_000_000)
    last = (
        pl.col("until") - pl.col("start")
    ).dt.total_microseconds() - 1  # a value at the very end is of the last step
    return (
        events.select("row", "subject_id", "time", "visit_id", "recorded", "code", value="numeric_value")
        .filter(pl.col("code").is_in(features) & pl.col("value").is_not_null())
        .join(spans, on="subject_id")
        .filter(inside & same & stored)
        .select(
            "window",
            step=pl.min_horizontal(step, pl.max_horizontal(last // (step_hours * 3_600_000_000), 0)),
            feature=pl.col("code").replace_strict(numbers, return_dtype=pl.Int64),
            value="value",
            row=pl.col("row").cast(pl.Int64),
        )
        .sort("row")  # by time, and in the source's order at one time
        .group_by("window", "step", "feature", maintain_order=True)
        .agg(pl.col("value").last(), pl.col("row").last())
        .collect(engine="streaming")
    )


def _hourly(
    events: pl.LazyFrame, rows: pl.DataFrame, features: tuple[str, ...], leakage: Leakage
) -> list[Sample[TimeSeries]]:
    """A sample for each hour in `rows` by which anything was measured, in arrays that those of one stay share.

    strict: a value stands in the hour in which it was stored.
    """
    stay = ["visit_id", "start"]
    whole = rows.group_by(stay, maintain_order=True).agg(
        pl.first("subject_id"), pl.first("window"), pl.max("until"), pl.first("label"), pl.last("outcome")
    )
    clock = "recorded" if leakage == "strict" else "time"
    measured = _measured(events, whole.select(rows.columns), features, leakage, 1, clock)
    filled = _fill(whole.select(rows.columns), measured, features, TASKS["dec"].name, 1, sys.maxsize)
    table = {(full.visit_id, full.prediction_time): full for full in filled}
    ends = dict(zip(whole.select(stay).iter_rows(), whole["until"], strict=True))
    samples = []
    for subject, visit, window, start, until, label, outcome in rows.iter_rows():
        full = table.get((visit, ends[visit, start]))
        steps = (until - start) // timedelta(hours=1)
        if full is not None and full.history.observed[:steps].any():
            whole_stay = full.history
            parts = (whole_stay.hours, whole_stay.values, whole_stay.source, whole_stay.observed)
            name = f"{TASKS['dec'].name}-{subject}-{window}"
            hours, values, source, observed = (part[:steps] for part in parts)
            series = TimeSeries(features, hours, values, source, observed)
            samples.append(Sample(name, subject, visit, until, series, label, outcome))
    return samples


def _fill(
    windows: pl.DataFrame,
    measured: pl.DataFrame,
    features: tuple[str, ...],
    name: str,
    step_hours: int,
    keep: int,
) -> list[Sample[TimeSeries]]:
    """One sample a stay that has values: the arrays filled, carried forward, and cut to the last `keep` steps."""
    cells = {key[0]: part for key, part in measured.partition_by("window", as_dict=True).items()}
    samples = []
    for subject, visit, window, start, until, label, outcome in windows.iter_rows():
        part = cells.get(window)
        if part is None:
            continue
        hours = (until - start).total_seconds() / 3600
        steps = max(int(np.ceil(hours / step_hours)), 1)
        source = np.full((steps, len(features)), -1, np.int64)
        values = np.full((steps, len(features)), np.nan, np.float32)
        at = (part["step"].to_numpy(), part["feature"].to_numpy())
        source[at], values[at] = part["row"].to_numpy(), part["value"].to_numpy()
        observed = source >= 0
        # LOCF: for each cell the step of the last observation up to it.
        last = np.maximum.accumulate(np.where(observed, np.arange(steps)[:, None], -1), axis=0)
        columns = np.arange(len(features))
        carried = np.where(last >= 0, source[last, columns], -1)
        filled = np.where(last >= 0, values[last, columns], np.nan).astype(np.float32)
        ends = np.minimum(np.arange(1, steps + 1) * step_hours, hours).astype(np.float32)
        newest = slice(max(steps - keep, 0), None)
        samples.append(
            Sample(
                f"{name}-{subject}-{window}",
                subject,
                visit,
                until,
                TimeSeries(features, ends[newest], filled[newest], carried[newest], observed[newest]),
                label,
                outcome,
            )
        )
    return samples
