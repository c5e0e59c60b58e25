"""A task of the user's own: task=PACKAGE.MODULE with `TASK` and `labels(cohort)` (docs/extending.md)."""

from __future__ import annotations

import polars as pl

from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.tasks.ehrshot import before_death
from ghar.data.tasks.labelled import labelled_samples
from ghar.data.tasks.stays import Leakage
from ghar.errors import BadInput
from ghar.extensions import import_module

COLUMNS = {"subject_id": pl.Int64, "prediction_time": pl.Datetime("us"), "label": pl.Int64}


def own_task_samples(cohort: Cohort, name: str, leakage: Leakage) -> tuple[Task, list[Sample]]:
    """The task and a sample for each of its labels, without those after a death. BadInput for a label that is none."""
    module = import_module("task", name, "TASK", "labels")
    about, rows = module.TASK, module.labels(cohort)
    if not isinstance(about, Task) or len(about.labels) < 2:
        raise BadInput(f"task={name}: TASK must be a ghar.data.cohort.Task of two labels or more.")
    for column, kind in COLUMNS.items():
        have = rows.schema.get(column)
        if have != kind:
            wrong = "missing" if have is None else have
            raise BadInput(f"task={name}: column {column} of labels is {wrong}, and must be {kind}.")
    rows = rows.select(*COLUMNS)
    outside = rows.filter(pl.col("label").is_between(0, len(about.labels) - 1).fill_null(False).not_())
    if outside.height or rows.null_count().sum_horizontal()[0]:
        raise BadInput(f"task={name}: labels must be numbers from 0 to {len(about.labels) - 1}, with patient and time.")
    return about, labelled_samples(cohort, about.name, before_death(rows, cohort)[0], leakage)
