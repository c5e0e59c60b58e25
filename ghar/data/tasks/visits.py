"""The task that task=... names, for systems that read visits of codes: GHAR's, KARE's, EHRSHOT's and any label file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import polars as pl

from ghar.config import Data
from ghar.config import Task as TaskConfig
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.mapping import CodeMap
from ghar.data.tasks.ehrshot import TASKS, ehrshot_labels, require_labels
from ghar.data.tasks.given import given_splits, label_rows, split_samples
from ghar.data.tasks.label_files import label_file_task
from ghar.data.tasks.labelled import labelled_samples
from ghar.data.tasks.next_visit import kare_samples
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.stays import Leakage, make_samples
from ghar.errors import BadInput

EHRSHOT = ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia")
VISIT_TASKS = ("los", "read", "dec", "kare_mortality", "kare_readmission", *EHRSHOT)


@dataclass(frozen=True, eq=False)
class TaskSamples:
    """One task on one cohort: all its samples, and their split. counts: what was left out or given, for the report."""

    task: Task
    samples: list[Sample]
    splits: Splits[Sample]
    counts: Mapping[str, int] = field(default_factory=dict)


def read_task(cohort: Cohort, data: Data, task: TaskConfig, code_map: CodeMap | None = None) -> TaskSamples:
    """The task's samples, with the labels and the split that came with the data where it has them.

    cohort: in its own codes, by which labels are defined; code_map: what the codes of shown visits become.
    What every system should start from, so that all of them answer the same samples. Raises BadInput as
    `visit_samples`, `given_labels` and `split_samples` do.
    """
    labels, counts = None, {}
    if task.name in EHRSHOT:
        labels, counts = label_rows(cohort, data, task.name)
    about, samples = visit_samples(cohort, task, data.leakage, labels)
    samples = samples if code_map is None else code_map.samples(samples)
    return TaskSamples(about, samples, split_samples(samples, task, given_splits(data, task.name)), counts)


def visit_samples(
    cohort: Cohort, task: TaskConfig, leakage: Leakage, labels: pl.DataFrame | None = None
) -> tuple[Task, list[Sample]]:
    """The task and its samples as configured.

    labels: of one of EHRSHOT's tasks, as `label_rows` returns them; counted where there are none. Raises BadInput as
    `make_samples`, `kare_samples` and `labelled_samples` do, and for a task without visits.
    """
    days, legacy = task.window_days, task.legacy_order
    if task.name == "kare_mortality":
        return kare_samples(cohort, "mortality", leakage=leakage, legacy_order=legacy)
    if task.name == "kare_readmission":
        # PyHealth, whose order legacy_order repeats, counts from admission to admission.
        window = "released" if legacy else "paper"
        return kare_samples(
            cohort, "readmission", leakage=leakage, window=window, window_days=days, legacy_order=legacy
        )
    if task.name in EHRSHOT:
        rows = ehrshot_labels(cohort, task.name)[0] if labels is None else labels
        require_labels(rows, cohort, task.name)
        return TASKS[task.name], labelled_samples(cohort, task.name, rows, leakage)
    if task.name == "labels":
        about, rows = label_file_task(task)
        return about, labelled_samples(cohort, about.name, rows, leakage)
    if task.name not in ("los", "read", "dec"):
        raise BadInput(f"task={task.name} shows no visits of codes, which this system predicts from: choose another.")
    return make_samples(cohort, task.name, leakage=leakage, anchor=task.anchor, window_days=days, legacy_order=legacy)
