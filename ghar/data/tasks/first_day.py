"""Two questions that are asked 24 hours after a stay began: how long it will last, and whether the patient dies in it.

task           label                                         left out (counted)
los_24h        whole days of the stay in 9 classes, from 1   over_in_24h: discharged or dead by then
mortality_24h  death in this stay                            no_end: no one knows when the stay was over

Both leave out the same stays, and a stay is a hospital stay in MIMIC and an ICU stay in eICU, as in
`ghar.data.tasks.stays`. In eICU they need no order of hospital stays: the history stays inside the one asked about.

Nothing is shown that was not recorded by the prediction time, also with leakage="paper": no paper's protocol is
repeated here that would show more. So of the stay itself MIMIC shows no ICD codes, which are recorded at discharge;
eICU shows the diagnoses and treatments that were entered in its first day.
"""

from __future__ import annotations

from typing import Literal

import polars as pl

from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.tasks.stays import DAY, alive_until, collect_samples, days_class, in_order_of
from ghar.errors import BadInput

FirstDayTask = Literal["los_24h", "mortality_24h"]
FIRST_DAY = ("los_24h", "mortality_24h")


def first_day_samples(cohort: Cohort, task: FirstDayTask) -> tuple[Task, list[Sample], dict[str, int]]:
    """The task, its samples by patient and time, and how many stays each rule left out.

    Raises BadInput for visits out of order, and where no stay of the cohort lasted longer than 24 hours.
    """
    cohort = in_order_of(cohort, "strict", legacy_order=False)
    visits = cohort.visits.with_columns(at=pl.col("start") + DAY, until=alive_until("end"))
    stays = visits.filter(pl.col("end").is_not_null())
    long_stays = stays.filter(pl.col("until") > pl.col("at"))
    left_out = {"no_end": visits.height - stays.height, "over_in_24h": stays.height - long_stays.height}
    if long_stays.is_empty():
        raise BadInput(
            f"Task {task} has no sample in the {cohort.name}: of {visits.height} stays none went on after 24 hours."
        )
    label = days_class() - 1 if task == "los_24h" else pl.col("died")
    rows = long_stays.select(
        "visit_id", predicted_at="at", shown_until="at", label=label.cast(pl.Int64), outcome_at="until"
    )
    samples = collect_samples(cohort, task, rows, "strict")
    return first_day_task(cohort, task), samples, {rule: n for rule, n in left_out.items() if n}


def first_day_task(cohort: Cohort, task: FirstDayTask) -> Task:
    """The question of `task`, in the words of the cohort's stays, and its answers."""
    if task == "los_24h":
        question = (
            f"This {cohort.stay} stay has lasted 24 hours. How many days will it last in all: 1 to 7 for that many "
            "whole days, 8 for 8 to 14 days, 9 for more than 14 days?"
        )
        return Task(task, question, tuple("123456789"))
    place = {"hospital": "in hospital", "ICU": "in the ICU"}[cohort.stay]
    question = f"This {cohort.stay} stay has lasted 24 hours. Will this patient die {place} before it ends?"
    return Task(task, question, ("no", "yes"))
