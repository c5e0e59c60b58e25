"""KARE's two tasks (kare.txt, Section 4.1): death in the next visit, and readmission within 15 days.

Both predict from a visit that has a successor, at its discharge, and show the visits up to it:

mortality    the patient dies in the next visit. Conditions on there being a next visit, so it says nothing about the
             others.
readmission  window="paper": the next admission begins at most 15 days after the discharge; "released": less than 15
             days after the admission, as the released code counts.

legacy_order=True walks through the visits as PyHealth 1.1.x does (trap 1; `ghar.data.tasks.stays`): by id,
negative gaps and deaths included. With window="released" this is what the released code computes.

Excluded: a patient's last visit (censored, not negative); in-hospital deaths; a next visit that began before the
discharge; visits with an unknown end; visits without a diagnosis, a procedure or a drug (PyHealth's preprocessing,
which the paper uses) - they are shown as history, but not predicted from. leakage="paper" shows every code of the
shown visits, "strict" what was recorded by the discharge.

`mimic4_sample` draws KARE's cohort for MIMIC-IV, one sample a patient: for mortality every positive patient with at
most ten visits and negative ones up to 10,000 in all, for readmission 5,000 of each. The paper gives the seed (42) but
not the generator, and not which sample of a patient is meant: here the first in a random order, so the draw has the
paper's size and balance and not its patients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.tasks.stays import Leakage, Stay, collect_samples, in_order_of, ordered_within
from ghar.errors import BadInput

NextVisitTask = Literal["mortality", "readmission"]
Window = Literal["paper", "released"]
SEED = 42
SIZE = 10_000
MAX_VISITS = 10


def next_visit_samples(
    cohort: Cohort,
    task: NextVisitTask,
    *,
    leakage: Leakage = "paper",
    window: Window = "paper",
    window_days: int = 15,
    legacy_order: bool = False,
) -> tuple[Task, list[Sample]]:
    """The task and its samples, by patient and time. Raises BadInput for unknown names and when there is no sample."""
    for name, value, choices in (
        ("task", task, ("mortality", "readmission")),
        ("leakage", leakage, ("paper", "strict")),
        ("window", window, ("paper", "released")),
    ):
        if value not in choices:
            raise BadInput(f"There is no {name}={value!r} of KARE: choose {' or '.join(choices)}.")
    cohort = in_order_of(cohort, leakage, legacy_order)
    within = ordered_within(cohort.visits)
    if task == "readmission" and "group" in within:
        raise BadInput(
            f"KARE's readmission makes no sense in the {cohort.name}: a next ICU stay there is one of the same "
            "hospital stay, within days for nearly everyone who has one. Choose kare_mortality, or task=read."
        )
    start, end = pl.col("start"), pl.col("end")
    after = start.shift(-1).over(within)
    coming = ("died", "death_time", "end")
    visits = cohort.visits.with_columns(
        next=after, **{f"next_{name}": pl.col(name).shift(-1).over(within) for name in coming}
    )
    after_discharge = pl.col("next") - end <= pl.duration(days=window_days)
    after_admission = pl.col("next") - start < pl.duration(days=window_days)
    soon = after_discharge if window == "paper" else after_admission
    closes = (end if window == "paper" else start) + pl.duration(days=window_days)
    outcome_at = pl.when(soon).then("next").otherwise(pl.max_horizontal(closes, end))
    if task == "mortality":
        outcome_at = pl.coalesce("next_death_time", "next_end")
    wanted = pl.col("next").is_not_null() & end.is_not_null()
    if not legacy_order:
        wanted &= ~pl.col("died") & (pl.col("next") >= end)
    rows = (
        visits.filter(wanted)
        .filter(pl.col("visit_id").is_in(list(complete_visits(cohort))))
        .select(
            "visit_id",
            predicted_at="end",
            shown_until="end",
            label=(pl.col("next_died") if task == "mortality" else soon).cast(pl.Int64),
            outcome_at=outcome_at,
        )
    )
    if rows.is_empty():
        raise BadInput(f"KARE's {task} has no sample in the {cohort.name}: it needs patients with complete visits.")
    return _about(task, window_days, cohort.stay), collect_samples(cohort, f"kare-{task}", rows, leakage)


def mimic4_sample(
    samples: Sequence[Sample], task: NextVisitTask, *, size: int = SIZE, seed: int = SEED
) -> list[Sample]:
    """KARE's draw from all samples of MIMIC-IV, in the order they came in; see the module. BadInput if too few."""
    short = [sample for sample in samples if task == "readmission" or len(sample.history) <= MAX_VISITS]
    order = np.random.default_rng(np.random.SeedSequence(seed)).permutation(len(short))
    drawn: dict[int, int] = {}  # patient -> index of the sample; positives choose first
    positives = [i for i in order if short[i].label == 1]
    for i in positives:
        if task == "mortality" or len(drawn) < size // 2:
            drawn.setdefault(short[i].subject_id, int(i))
    for i in (i for i in order if short[i].label == 0):
        if len(drawn) < size:
            drawn.setdefault(short[i].subject_id, int(i))
    selection = [short[i] for i in sorted(drawn.values())]
    share = sum(sample.label for sample in selection)
    if len(selection) < size or len(selection) > size or (task == "readmission" and share != size // 2):
        raise BadInput(
            f"KARE's draw of {size} patients for {task} is not possible: {len(selection)} were found, {share} of them "
            "positive: lower the size, or use the samples as they are."
        )
    return selection


def complete_visits(cohort: Cohort) -> set[int]:
    """Visits with at least one code of each of the three kinds, which PyHealth's tasks keep."""
    return {v.visit_id for v in cohort.shown.visits.values() if v.diagnoses and v.procedures and v.medications}


def _about(task: NextVisitTask, window_days: int, stay: Stay) -> Task:
    """The task, with the question for this kind of stay: in eICU a visit is an ICU stay."""
    if task == "mortality":
        visit = {"hospital": "hospital visit", "ICU": "ICU stay"}[stay]
        return Task("kare-mortality", f"Will this patient die in the next {visit}?", ("no", "yes"))
    question = f"Will this patient be readmitted to the hospital within {window_days} days?"
    return Task("kare-readmission", question, ("no", "yes"))
