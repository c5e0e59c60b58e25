"""A benchmark's own labels and split, which may lie beside a MEDS folder's data.

labels/<task>.parquet, or a folder labels/<task>   used in place of the counted labels of EHRSHOT's tasks
metadata/subject_splits.parquet                    cuts the patients of tasks whose labels lie there, and of task=labels

Labels of any other question are task=labels (`ghar.data.tasks.label_files`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import polars as pl

from ghar.config import DataConfig
from ghar.config import TaskConfig as TaskConfig
from ghar.data.cohort import Cohort
from ghar.data.readers.meds_labels import beside_data, once_each, read_labels, read_subject_splits
from ghar.data.tasks.ehrshot import (
    TASKS,
    EhrshotTask,
    Labels,
    before_death,
    ehrshot_labels,
    label_indices,
    require_labels,
)
from ghar.data.tasks.splits import S, Splits, split_as_given, split_by_patient


def label_rows(cohort: Cohort, data: DataConfig, name: EhrshotTask) -> Labels:
    """subject_id, prediction_time, label of one of EHRSHOT's tasks, its own or counted, and counts for the report.

    Raises BadInput where there is none, and as `own_labels` and `ehrshot_labels` do.
    """
    labels = own_labels(data, name)
    if labels is not None:
        labels, dead = before_death(labels, cohort)
        counts = {"labels that came with the data": labels.height}
        counts |= {"left out, after_death": dead} if dead else {}
    else:
        labels, left_out = ehrshot_labels(cohort, name)
        counts = {f"left out, {rule}": n for rule, n in left_out.items()}
    require_labels(labels, cohort, name)
    return labels, counts


def own_labels(data: DataConfig, name: str) -> pl.DataFrame | None:
    """The labels that came with the data, as `label_indices` returns them; None where there are none.

    Raises BadInput for a file that is no MEDS label file, or not of this task.
    """
    path = _label_path(data, name)
    return None if path is None else once_each(label_indices(read_labels(path), TASKS[name]), path)


def own_splits(data: DataConfig, name: str) -> dict[int, str] | None:
    """The split of each patient that came with the labels; None where labels or split did not come with the data."""
    if data.name != "meds" or data.root is None or (name != "labels" and _label_path(data, name) is None):
        return None
    path = Path(data.root) / "metadata" / "subject_splits.parquet"
    return read_subject_splits(Path(data.root)) if path.exists() else None


def split_samples(
    samples: Sequence[S],
    task: TaskConfig,
    own: Mapping[int, str] | None = None,
    everyone: Iterable[int] | None = None,
) -> Splits[S]:
    """Train, validation and test samples as `own` has them, else drawn by patient; at most task.max_train and so on.

    everyone: the patients that are drawn from, those of the samples by default. Raises BadInput as `split_as_given` and
    `split_by_patient` do.
    """
    if own is None:
        splits = split_by_patient(samples, task.split, task.split_seed, everyone)
    else:
        splits = split_as_given(samples, own)
    return splits.limited(task.max_train, task.max_valid, task.max_test, task.split_seed)


def _label_path(data: DataConfig, name: str) -> Path | None:
    """The file, or folder, of a task's labels; the other tasks count theirs."""
    return beside_data(data, name) if name in TASKS else None
