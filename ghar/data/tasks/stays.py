"""The three tasks of the GHAR paper on a cohort: length of stay, readmission and 24-hour decompensation.

Visits are in time order (trap 1 of docs/traps.md), which is checked. What each task predicts, when, and what it shows:

task  label                                            history        predicted at, paper   predicted at, strict
los   floor(days) of the stay in 10 classes            u_1 .. u_j+1   discharge (or death)  admission
read  next admission within the window after discharge u_1 .. u_j     discharge             discharge
dec   in-hospital death within 24 h of the anchor      u_1 .. u_j+1   anchor                anchor

leakage="paper" follows the paper's protocol and shows all codes of every visit of the history, those of the predicted
visit included. leakage="strict" shows, in every visit, only codes whose `recorded` time is not after the prediction
time. ICD codes are recorded at discharge: `read` may show those of the visit it predicts from, `los` and `dec` never
show those of the visit they predict. Choices the paper leaves open:

los, strict    predicts at the admission itself: from any later hour on, being still there would give class 0 away.
dec, anchor    "discharge": 24 h before the end of the stay (the death, else the discharge), not before the admission,
               so that every in-hospital death is positive. The default, because the paper predicts from the
               visit-level history u_1 .. u_j+1, which is complete only then. "admission": death within 24 h after it.
read, anchor   what the window counts from: the discharge, or, as the paper's formula has it ("encounter time"), the
               admission; a stay that is longer than the window is then negative.
read           live discharges only; a patient's last visit is censored, not negative, and left out; a next admission
               that began before the discharge (overlapping stays) was known at the discharge and is left out too.
A stay is a hospital stay in MIMIC and an ICU stay in eICU. Where visits have groups (`Cohort`), history and
next visit stay inside the group: for eICU, `read` is the return to an ICU within the same hospital stay. A stay that
begins at the minute at which another one ended is a move between units and no return (`next_return`). The last ICU stay
is not censored: the hospital stay is over and the patient did not return, so it is negative, also where the patient
died on the ward. Predicting only where there is a next ICU stay, as for MIMIC, would ask a question with one
answer: nearly all are positive in the open demo, and the paper's Table VI reports accuracies of 0.92 at balanced
accuracies of 0.50 to 0.59.

legacy_order=True repeats what PyHealth 1.1.x does, which the paper's data went through (trap 1): visits in the order of
their ids, so that history and "next visit" may lie in the future; `read` counts from admission to admission, less than
the window, negative gaps included, also after deaths. For reproduction only, and with leakage="paper" only.

Visits with an unknown end (a counted rule of the reader) are shown, count as readmissions, and are never predicted.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Literal

import polars as pl

from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.visit_codes import without_collector
from ghar.errors import BadInput

TaskName = Literal["los", "read", "dec"]
Leakage = Literal["paper", "strict"]
Anchor = Literal["discharge", "admission"]
Stay = Literal["hospital", "ICU"]

DAY = timedelta(days=1)


def make_samples(
    cohort: Cohort,
    task: TaskName,
    *,
    leakage: Leakage = "paper",
    anchor: Anchor = "discharge",
    window_days: int = 15,
    legacy_order: bool = False,
) -> tuple[Task, list[Sample]]:
    """The task and its samples, by patient and time; `anchor` concerns dec and read, `window_days` read only.

    Times and choices are in the module's docstring. Raises BadInput when no visit of the cohort can be predicted.
    """
    cohort = in_order_of(cohort, leakage, legacy_order)
    if task == "los":
        rows, about = _los(cohort.visits, leakage), los_task(cohort.stay)
    elif task == "read":
        rows, about = _read(cohort.visits, window_days, legacy_order, anchor), read_task(window_days, cohort.stay)
    elif task == "dec":
        rows, about = _dec(cohort.visits, anchor), dec_task(cohort.stay)
    else:
        raise BadInput(f"There is no task {task!r}: choose los, read or dec.")
    if leakage not in ("paper", "strict"):
        raise BadInput(f"There is no leakage={leakage!r}: choose paper or strict.")
    if rows.is_empty():
        raise BadInput(f"Task {task} has no sample in the {cohort.name}: it needs more or longer-followed patients.")
    return about, collect_samples(cohort, task, rows, leakage)


def los_task(stay: Stay = "hospital") -> Task:
    """Length of stay in 10 classes."""
    question = (
        f"How many days will this {stay} stay last: 0 for less than one day, 1 to 7 for that many whole days, "
        "8 for 8 to 14 days, 9 for more than 14 days?"
    )
    return Task("los", question, tuple("0123456789"))


def read_task(window_days: int, stay: Stay = "hospital") -> Task:
    """Readmission within `window_days` of the discharge."""
    questions = {
        "hospital": f"Will this patient be readmitted within {window_days} days of discharge?",
        "ICU": f"Will this patient return to an ICU within {window_days} days, before leaving the hospital?",
    }
    return Task("read", questions[stay], ("no", "yes"))


def dec_task(stay: Stay = "hospital") -> Task:
    """Death in the stay within 24 hours."""
    place = {"hospital": "in hospital", "ICU": "in the ICU"}[stay]
    return Task("dec", f"Will this patient die {place} within the next 24 hours?", ("no", "yes"))


def _los(visits: pl.DataFrame, leakage: Leakage) -> pl.DataFrame:
    """Rows to predict: visit_id, predicted_at, shown_until (strict), label."""
    return visits.filter(pl.col("end").is_not_null()).select(
        "visit_id",
        predicted_at=alive_until("end") if leakage == "paper" else pl.col("start"),
        shown_until=_before_end(pl.col("start")),
        label=days_class().cast(pl.Int64),
        outcome_at=alive_until("end"),
    )


def days_class() -> pl.Expr:
    """The class of a stay's length in whole days: 0 to 7, 8 for 8 to 14, 9 for more."""
    days = (pl.col("end") - pl.col("start")).dt.total_days()
    return pl.when(days > 14).then(9).when(days > 7).then(8).otherwise(days)


def _read(visits: pl.DataFrame, window_days: int, legacy_order: bool, anchor: Anchor) -> pl.DataFrame:
    window, end = pl.duration(days=window_days), pl.col("end")
    coming = pl.col("start").shift(-1).over(ordered_within(visits))
    if legacy_order:
        rows, soon = visits.filter(end.is_not_null() & coming.is_not_null()), pl.col("gap") < window
        gap = coming - pl.col("start")
    else:
        if "group" in visits.columns:
            coming = next_return(visits)
        over = pl.lit("group" in visits.columns) & coming.is_null()  # no return before the hospital stay was over
        live = ~pl.col("died") & end.is_not_null()
        rows, soon = visits.filter(live & (over | (coming >= end))), (pl.col("gap") <= window).fill_null(False)
        gap = coming - pl.col("end" if anchor == "discharge" else "start")
    gaps = visits.select("visit_id", gap=gap, coming=coming)
    closes = pl.col("end" if anchor == "discharge" else "start") + window
    outcome_at = pl.when(soon).then("coming").otherwise(pl.max_horizontal(closes, "end"))
    return rows.join(gaps, on="visit_id", maintain_order="left").select(
        "visit_id", predicted_at="end", shown_until="end", label=soon.cast(pl.Int64), outcome_at=outcome_at
    )


def next_return(visits: pl.DataFrame) -> pl.Expr:
    """When the patient next comes to a unit after having left one, inside the group; null where that never happens.

    A stay that begins at the minute at which another one ended is a move between units (eicu-code#149): no return.
    """
    within, start = ordered_within(visits), pl.col("start")
    moved = (start == pl.col("end").shift().over(within)).fill_null(False)
    returns = pl.when(~moved).then(start)
    return returns.shift(-1).backward_fill().over(within)


def _dec(visits: pl.DataFrame, anchor: Anchor) -> pl.DataFrame:
    if anchor == "discharge":
        stay_end = pl.when("died").then("death_time").otherwise("end")
        at = pl.max_horizontal(stay_end - DAY, "start")
    elif anchor == "admission":
        at = pl.col("start")
    else:
        raise BadInput(f"There is no anchor={anchor!r} for task dec: choose discharge or admission.")
    dies = pl.col("died") & (pl.col("death_time") - at <= DAY)
    return visits.filter(pl.col("end").is_not_null()).select(
        "visit_id",
        predicted_at=at,
        shown_until=_before_end(at),
        label=dies.cast(pl.Int64),
        outcome_at=pl.when(dies).then("death_time").otherwise(at + DAY),
    )


def in_order_of(cohort: Cohort, leakage: Leakage, legacy_order: bool) -> Cohort:
    """The cohort with its visits in time order, which is checked, or in the order of their ids (see the module)."""
    within = ordered_within(cohort.visits)
    if not legacy_order:
        late = cohort.visits.select((pl.col("start") < pl.col("start").shift().over(within)).sum()).item()
        if late:
            raise BadInput(f"{late} visits of the {cohort.name} are not in time order: sort cohort.visits by start.")
        return cohort
    if leakage != "paper":
        raise BadInput("legacy_order=true shows visits of the future: it goes with leakage=paper only.")
    return replace(cohort, visits=cohort.visits.sort(*within, "visit_id"))


def ordered_within(visits: pl.DataFrame) -> list[str]:
    """Columns within which visits have an order."""
    return ["subject_id", "group"] if "group" in visits.columns else ["subject_id"]


def alive_until(end: str) -> pl.Expr:
    """The end of a stay, or the death before it: nothing is predicted of the dead."""
    return pl.min_horizontal(end, pl.when("died").then("death_time"))


def _before_end(at: pl.Expr) -> pl.Expr:
    """In a stay of no length the discharge codes are recorded at the admission; they stay hidden all the same."""
    return pl.min_horizontal(at, pl.col("end") - timedelta(microseconds=1))


@without_collector()
def collect_samples(cohort: Cohort, task: str, rows: pl.DataFrame, leakage: Leakage) -> list[Sample]:
    """Walk through the visits in time order and collect each predicted one with its history.

    rows: visit_id, predicted_at, shown_until (what strict shows), label, outcome_at. `task` begins the sample ids.
    """
    visit_codes = cohort.shown
    until_us = rows.with_columns(pl.col("shown_until").to_physical())
    predicted = {visit_id: rest for visit_id, *rest in until_us.iter_rows()}
    samples: list[Sample] = []
    within = ordered_within(cohort.visits)
    current, past = None, []
    for visit_id, *owner in cohort.visits.select("visit_id", *within).iter_rows():
        subject = owner[0]
        if owner != current:
            current, past = owner, []
        past.append(visit_codes.visits[visit_id])
        if visit_id in predicted:
            at, until, label, outcome = predicted[visit_id]
            history = past if leakage == "paper" else [visit_codes.until(visit, until) for visit in past]
            name = f"{task}-{subject}-{visit_id}"
            samples.append(
                Sample(
                    name, subject, visit_id, at, tuple(history), label, outcome, credentialed=cohort.credentialed
                )
            )
    return samples
