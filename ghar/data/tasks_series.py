"""GraphWalker's three tasks on time series of measurements (graphwalker.txt, Sections 5, B, C, K).

task         shown                                  predicted at  label
mortality    the first 48 h                         48 h          death in the stay; stays of 48 h or longer (MIMIC-III
                                                                  benchmark, Harutyunyan et al. 2019)
readmission  the stay, its last `last_steps` steps  discharge     next admission, or death, within 30 days of it
los          paper: the stay, its last steps        discharge     days of the stay: below 3, 3 to 7, 7 to 14, 14 or more
             strict: the first 24 h                 24 h          the same, of stays of 24 h or longer

A step is `step_hours` long (24: the paper's daily records; 1: hourly). It holds the last value of each feature in it,
else the last one before it (LOCF), also of steps that are cut off: the paper keeps seven days and says earlier ones are
summarised, not how. Choices where the paper leaves one:

mortality    the paper shows the whole stay, the end included; here the benchmark's window, in both modes.
readmission  death within 30 days counts as the prompt says, as far as the cohort knows of it: deaths in later stays and
             MEDS_DEATH events. A last stay without such a death is censored and left out, not negative. In-hospital
             deaths and a next stay that began before the discharge are left out.
los          the paper's prompt asks for the hospital stay (its code predicts the rest of the ICU stay). Showing the
             whole stay gives the answer away by its number of steps, hence strict.
Which values: numbers of the stay, or of the patient in that time without a stay. leakage="paper" cuts on the time a
value was measured, "strict" also on the time it was stored (trap 4, EHR.md). Stays without any value are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort, Task
from ghar.data.samples import TimeSeriesSample
from ghar.data.tasks import Leakage, ordered_within
from ghar.data.vitals import VARIABLES
from ghar.errors import BadInput

SeriesTask = Literal["mortality", "readmission", "los"]
VITALS = tuple(f"VITAL/{name}" for name in VARIABLES)
DAY, TWO_DAYS, MONTH = timedelta(days=1), timedelta(days=2), timedelta(days=30)
TASKS: dict[SeriesTask, Task] = {
    "mortality": Task("series-mortality", "Will this patient die in this hospital stay?", ("no", "yes")),
    "readmission": Task(
        "series-readmission", "Will this patient be readmitted or die within 30 days of discharge?", ("no", "yes")
    ),
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
    last_steps: int = 7,
) -> tuple[Task, list[TimeSeriesSample]]:
    """The task and its samples, by patient and time; `features` are codes whose events carry numbers.

    Raises BadInput for unknown names, steps that are no positive numbers, and when there is no sample.
    """
    if task not in TASKS or leakage not in ("paper", "strict"):
        raise BadInput(
            f"There is no task {task!r} with leakage={leakage!r}: choose {', '.join(TASKS)}; paper or strict."
        )
    if step_hours < 1 or last_steps < 1:
        raise BadInput(f"step_hours={step_hours} and last_steps={last_steps} must be 1 or more: correct them.")
    windows = series_labels(cohort, task, leakage)
    measured = _measured(cohort, windows, tuple(features), leakage, step_hours)
    keep = -(-48 // step_hours) if task == "mortality" else last_steps
    samples = _fill(windows, measured, tuple(features), TASKS[task].name, step_hours, keep)
    if not samples:
        raise BadInput(f"Task {TASKS[task].name} has no sample in the {cohort.name}: are {features[0]}, ... measured?")
    return TASKS[task], samples


def series_labels(cohort: Cohort, task: SeriesTask, leakage: Leakage = "paper") -> pl.DataFrame:
    """subject_id, visit_id, start, until (shown and predicted), label; a row a stay, measured or not."""
    start, end = pl.col("start"), pl.col("end")
    visits = cohort.visits.filter(end.is_not_null())
    if task == "mortality":
        alive = pl.col("death_time").is_null() | (pl.col("death_time") > start + TWO_DAYS)
        rows = visits.filter((end - start >= TWO_DAYS) & alive)
        rows = rows.with_columns(until=start + TWO_DAYS, label=pl.col("died"))
    elif task == "readmission":
        rows = _discharges(cohort)
    else:
        days = (end - start).dt.total_seconds() / 86400
        label = (days >= 3).cast(pl.Int64) + (days >= 7).cast(pl.Int64) + (days >= 14).cast(pl.Int64)
        strict = leakage == "strict"
        rows = visits.filter(end - start >= DAY) if strict else visits
        rows = rows.with_columns(until=start + DAY if strict else end, label=label)
    return rows.select("subject_id", "visit_id", "start", "until", pl.col("label").cast(pl.Int64))


def _discharges(cohort: Cohort) -> pl.DataFrame:
    """Live discharges with `until` and `label`: readmission or death within 30 days after them."""
    within, end = ordered_within(cohort.visits), pl.col("end")
    visits = cohort.visits.with_columns(next=pl.col("start").shift(-1).over(within))
    told = cohort.events.filter(pl.col("code").str.starts_with("MEDS_DEATH")).select("subject_id", death="time")
    seen = cohort.visits.filter("died").select("subject_id", death="death_time")
    deaths = pl.concat([told, seen]).group_by("subject_id").agg(pl.col("death").max())
    live = visits.filter(~pl.col("died") & end.is_not_null() & (pl.col("next") >= end).fill_null(True))
    rows = live.join(deaths, on="subject_id", how="left", maintain_order="left")
    back = (pl.col("next") - end <= MONTH).fill_null(False)
    dies = (pl.col("death") - end).is_between(timedelta(0), MONTH).fill_null(False)
    known = pl.col("next").is_not_null() | pl.col("death").is_not_null()
    return rows.filter(known).with_columns(until=end, label=back | dies)


def _measured(
    cohort: Cohort, windows: pl.DataFrame, features: tuple[str, ...], leakage: Leakage, step_hours: int
) -> pl.DataFrame:
    """visit_id, step, feature (their numbers), value and row of the last value of each step."""
    if len(set(features)) < len(features) or not features:
        raise BadInput("features must name at least one code and each only once: correct the list.")
    numbers = {code: i for i, code in enumerate(features)}
    spans = windows.lazy().select("subject_id", "start", "until", _visit="visit_id")
    inside = pl.col("time").is_between("start", "until")
    same = pl.col("visit_id").is_null() | (pl.col("visit_id") == pl.col("_visit"))
    stored = (pl.col("recorded") <= pl.col("until")).fill_null(False) if leakage == "strict" else pl.lit(True)
    step = (pl.col("time") - pl.col("start")).dt.total_microseconds() // (step_hours * 3_600_000_000)
    last = (
        pl.col("until") - pl.col("start")
    ).dt.total_microseconds() - 1  # a value at the very end is of the last step
    return (
        cohort.events.lazy()
        .select("subject_id", "time", "visit_id", "recorded", "code", value="numeric_value")
        .with_row_index("row")
        .filter(pl.col("code").is_in(features) & pl.col("value").is_not_null())
        .join(spans, on="subject_id")
        .filter(inside & same & stored)
        .select(
            visit_id="_visit",
            step=pl.min_horizontal(step, pl.max_horizontal(last // (step_hours * 3_600_000_000), 0)),
            feature=pl.col("code").replace_strict(numbers, return_dtype=pl.Int64),
            value="value",
            row=pl.col("row").cast(pl.Int64),
        )
        .sort("row")  # by time, and in the source's order at one time
        .group_by("visit_id", "step", "feature", maintain_order=True)
        .agg(pl.col("value").last(), pl.col("row").last())
        .collect()
    )


def _fill(
    windows: pl.DataFrame,
    measured: pl.DataFrame,
    features: tuple[str, ...],
    name: str,
    step_hours: int,
    keep: int,
) -> list[TimeSeriesSample]:
    """One sample a stay that has values: the arrays filled, carried forward, and cut to the last `keep` steps."""
    cells = {key[0]: part for key, part in measured.partition_by("visit_id", as_dict=True).items()}
    samples = []
    for subject, visit, start, until, label in windows.iter_rows():
        part = cells.get(visit)
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
        shown = slice(max(steps - keep, 0), None)
        samples.append(
            TimeSeriesSample(
                f"{name}-{subject}-{visit}",
                subject,
                visit,
                until,
                label,
                features,
                ends[shown],
                filled[shown],
                carried[shown],
                observed[shown],
            )
        )
    return samples
