"""A task: on the second day of a stay, whether it will last longer than a week."""

import polars as pl

from ghar.data.cohort import Cohort, Task

TASK = Task("long_stay", "Will the patient stay longer than a week?", ("no", "yes"))


def labels(cohort: Cohort) -> pl.DataFrame:
    """subject_id, prediction_time and label (a number among TASK.labels) of every stay of more than a day."""
    lasts = pl.col("end") - pl.col("start")
    return cohort.visits.filter(lasts > pl.duration(days=1)).select(
        "subject_id",
        prediction_time=pl.col("start") + pl.duration(days=1),
        label=(lasts > pl.duration(days=7)).cast(pl.Int64),
    )
