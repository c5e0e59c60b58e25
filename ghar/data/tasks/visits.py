"""The task that task=... names, for systems that read visits of codes: GHAR's, KARE's, EHRSHOT's, two that are asked
after a stay's first day, any label file, and a task of the user's own: task=PACKAGE.MODULE with `TASK` and
`labels(cohort)` (docs/extending.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta

import polars as pl

from ghar.config import DataConfig
from ghar.config import TaskConfig as TaskConfig
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.mapping import CodeMap
from ghar.data.tasks.ehrshot import TASKS, before_death, ehrshot_labels, require_labels
from ghar.data.tasks.eligible import eligible
from ghar.data.tasks.first_day import FIRST_DAY, first_day_samples
from ghar.data.tasks.label_files import label_file_task, located
from ghar.data.tasks.labelled import labelled_samples
from ghar.data.tasks.next_visit import SIZE, NextVisitTask, complete_visits, mimic4_sample, next_visit_samples
from ghar.data.tasks.own_labels import label_rows, own_splits, split_samples
from ghar.data.tasks.splits import S, Splits
from ghar.data.tasks.stays import Leakage, make_samples
from ghar.data.tasks.subsets import last_of_patients, sample_patients
from ghar.errors import BadInput
from ghar.extensions import import_module, is_module

# How long after the prediction the outcome is known at the latest.
HORIZONS = {
    "guo_los": timedelta(days=7), "guo_readmission": timedelta(days=30), "new_acutemi": timedelta(days=365),
    "lab_anemia": timedelta(minutes=1),
}  # fmt: skip
EHRSHOT = ("guo_los", "guo_readmission", "new_acutemi", "lab_anemia")
VISIT_TASKS = ("los", "read", "dec", "kare_mortality", "kare_readmission", *FIRST_DAY, *EHRSHOT)
# of `labels(cohort)` of a task of the user's own
COLUMNS = {"subject_id": pl.Int64, "prediction_time": pl.Datetime("us"), "label": pl.Int64}


@dataclass(frozen=True, eq=False)
class TaskSamples:
    """One task on one cohort: all its samples, and their split. counts: what was left out or given, for the report."""

    task: Task
    samples: list[Sample]
    splits: Splits[Sample]
    counts: Mapping[str, int] = field(default_factory=dict)


def read_task(cohort: Cohort, data: DataConfig, task: TaskConfig, code_map: CodeMap | None = None) -> TaskSamples:
    """The task's samples, with the labels and the split that came with the data where it has them.

    cohort: in its own codes, by which labels are defined; code_map: what the codes of shown visits become.
    What every system should start from, so that all of them answer the same samples. Raises BadInput as
    `visit_samples`, `located`, `own_labels` and `split_samples` do.
    """
    labels, counts = None, {}
    if task.name in EHRSHOT:
        labels, counts = label_rows(cohort, data, task.name)
    elif task.name == "labels":
        task = located(task, data)
        counts = _uncounted(cohort, task)
    elif task.name in FIRST_DAY:
        counts = {f"left out, {rule}": n for rule, n in first_day_samples(cohort, task.name)[2].items()}
    about, samples = visit_samples(cohort, task, data.leakage, labels)
    samples, left_out = eligible(samples, cohort, task.stays, data.root)
    samples = _drawn_next_visits(samples, task) if task.draw == "kare" else drawn(samples, cohort, task)
    samples = samples if code_map is None else code_map.samples(samples)
    return TaskSamples(about, samples, _split(samples, cohort, data, task), {**counts, **left_out})


def _uncounted(cohort: Cohort, task: TaskConfig) -> dict[str, int]:
    """What a label file leaves open, for the report: labels after the patient's death, which are left out, and that no
    one knows when the outcomes of the others were there, so that the share of samples that leak is unknown."""
    rows = label_file_task(task)[1]
    kept, dead = before_death(rows, cohort)
    counts = {"left out, after_death": dead} if dead else {}
    return {**counts, "samples whose outcome has no known time (leak score unknown)": kept.height}


def _split(samples: list[Sample], cohort: Cohort, data: DataConfig, task: TaskConfig) -> Splits[Sample]:
    """As given with the data, or drawn: of this task's patients, or of the whole cohort's, alike for every task."""
    everyone = cohort.visits["subject_id"].unique() if task.split_of == "cohort" else None
    return split_samples(samples, task, own_splits(data, task.name), everyone)


def _drawn_next_visits(samples: list[Sample], task: TaskConfig) -> list[Sample]:
    kinds: dict[str, NextVisitTask] = {"kare_mortality": "mortality", "kare_readmission": "readmission"}
    return mimic4_sample(samples, kinds[task.name], size=task.patients or SIZE)


def drawn(samples: Sequence[S], cohort: Cohort, task: TaskConfig) -> list[S]:
    """Those that task.draw and task.patients leave: of all patients the last sample, or of some. BadInput for too few.

    samples: by patient and time.
    """
    selection = list(samples)
    if task.draw == "last":
        selection = last_of_patients(selection, dict(cohort.visits.group_by("subject_id").len().iter_rows()))
    return selection if task.patients is None else sample_patients(selection, task.patients, task.split_seed)


def visit_samples(
    cohort: Cohort, task: TaskConfig, leakage: Leakage, labels: pl.DataFrame | None = None
) -> tuple[Task, list[Sample]]:
    """The task and its samples as configured.

    labels: of one of EHRSHOT's tasks, as `label_rows` returns them; counted where there are none. Raises BadInput as
    `make_samples`, `next_visit_samples`, `first_day_samples` and `labelled_samples` do, and for a task without visits.
    """
    days, legacy, anchor = task.window_days, task.legacy_order, task.anchor
    if task.name == "kare_mortality":
        return next_visit_samples(cohort, "mortality", leakage=leakage, legacy_order=legacy)
    if task.name == "kare_readmission":
        # PyHealth, whose order legacy_order repeats, counts from admission to admission.
        window = "released" if legacy or anchor == "admission" else "paper"
        return next_visit_samples(
            cohort, "readmission", leakage=leakage, window=window, window_days=days, legacy_order=legacy
        )
    if task.name in FIRST_DAY:
        return first_day_samples(cohort, task.name)[:2]
    if task.name in EHRSHOT:
        rows = ehrshot_labels(cohort, task.name)[0] if labels is None else labels
        require_labels(rows, cohort, task.name)
        samples = labelled_samples(cohort, task.name, rows, leakage)
        later = HORIZONS[task.name]
        return TASKS[task.name], [replace(sample, outcome_time=sample.prediction_time + later) for sample in samples]
    if task.name == "labels":
        about, rows = label_file_task(task)
        return about, labelled_samples(cohort, about.name, before_death(rows, cohort)[0], leakage)
    if is_module(task.name):
        return own_task_samples(cohort, task.name, leakage)
    if task.name not in ("los", "read", "dec"):
        raise BadInput(f"task={task.name} shows no visits of codes, which this system predicts from: choose another.")
    about, made = make_samples(cohort, task.name, leakage=leakage, anchor=anchor, window_days=days, legacy_order=legacy)
    return about, complete_only(made, cohort) if task.complete else made


def complete_only(samples: Sequence[Sample], cohort: Cohort) -> list[Sample]:
    """Samples of complete visits, which show complete visits alone. BadInput where none is left."""
    whole = complete_visits(cohort)
    kept = [sample for sample in samples if sample.visit_id in whole]
    if not kept:
        raise BadInput(f"No visit of the {cohort.name} has all three kinds of codes: set task.complete=false.")
    return [replace(s, history=tuple(visit for visit in s.history if visit.visit_id in whole)) for s in kept]


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
