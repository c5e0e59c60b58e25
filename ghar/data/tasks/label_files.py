"""Any MEDS label file as a task (task=labels): what ACES, MEDS-DEV or EHRSHOT wrote, or what you made yourself.

value column          answers, unless task.answers names them
boolean_value         no, yes
categorical_value     the values, in the order of the alphabet
integer_value         the values in order, at most `FEW` of them; with task.answers 0, 1, ... may stand for the answers
integer, float_value  bins: task.bins, else the quartiles of the file's values; an edge belongs to the bin above it

A file has values in one of these columns. The prediction times are the file's; what is shown at them is said in
`ghar.data.tasks.labelled`. Label files: LabelSchema of the package meds 0.4.1.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl

from ghar.config import Task as TaskConfig
from ghar.data.cohort import Task
from ghar.data.readers.meds_labels import read_labels
from ghar.errors import BadInput

PREFIX = "labels-"  # of the task's name, before the name of the file
FEW, MANY = 10, 50  # whole numbers that are taken as they are; answers at most


def label_file_task(config: TaskConfig) -> tuple[Task, pl.DataFrame]:
    """The task of task.labels, and subject_id, prediction_time, label in order of both.

    Raises BadInput for a file that is no label file, has values in several columns or of one class alone, and for
    answers that are not those of the file.
    """
    assert config.labels is not None  # `ghar.configure.contradictions`
    path = Path(config.labels)
    labels = read_labels(path)
    columns = labels.columns[2:]
    if len(columns) != 1:
        raise BadInput(f"{path} has values in {', '.join(columns)}: leave the column that task=labels is to predict.")
    answers, values = _answers(config, path, columns[0], labels[columns[0]])
    if values.n_unique() < 2 or len(answers) > MANY:
        raise BadInput(
            f"{path} has {values.n_unique()} different values among {len(answers)} answers: a task has 2 to {MANY}."
        )
    words = re.sub(r"[\W_]+", " ", path.stem if path.suffix else path.name).strip()
    question = config.question or f"What will be so of this patient: {words}?"
    rows = labels.select("subject_id", "prediction_time").with_columns(label=values.cast(pl.Int64))
    return Task(PREFIX + words.replace(" ", "_").lower(), question, answers), rows


def _answers(config: TaskConfig, path: Path, column: str, values: pl.Series) -> tuple[tuple[str, ...], pl.Series]:
    """The answers in order, and the number of each value's own."""
    named = config.answers
    if column in ("integer_value", "float_value"):
        return _of_numbers(config, path, values)
    if config.bins is not None:
        raise BadInput(f"task.bins cuts numbers, but {path} has {column}: leave it out.")
    if values.null_count():
        raise BadInput(f"{path} has {values.null_count()} rows without {column}: correct the label file.")
    if column == "boolean_value":
        answers = named or ("no", "yes")
        if len(answers) != 2:
            raise BadInput(f"task.answers has {len(answers)} answers, but {path} is true or false: name 2, no first.")
        return answers, values.cast(pl.Int64)
    found = sorted(values.unique())
    if named is not None and (unknown := [value for value in found if value not in named]):
        raise BadInput(f"{path} has values that task.answers does not name ({', '.join(unknown[:5])}): name them too.")
    answers = named or tuple(found)
    return answers, values.replace_strict(list(answers), list(range(len(answers))), return_dtype=pl.Int64)


def _of_numbers(config: TaskConfig, path: Path, values: pl.Series) -> tuple[tuple[str, ...], pl.Series]:
    numbers = values.cast(pl.Float64)
    if not numbers.is_finite().fill_null(False).all():
        raise BadInput(f"{path} has values that are no finite numbers: correct the label file.")
    named, found = config.answers, sorted(numbers.unique())
    if config.bins is None and values.dtype.is_integer() and (len(found) <= FEW or named is not None):
        if named is None:
            return tuple(f"{value:g}" for value in found), _ranks(numbers, found)
        if found[0] >= 0 and found[-1] < len(named):
            return named, values.cast(pl.Int64)
        if len(found) == len(named):
            return named, _ranks(numbers, found)
        raise BadInput(
            f"task.answers has {len(named)} answers, but {path} has whole numbers from {found[0]:g} to {found[-1]:g}: "
            "name one a number, or set task.bins."
        )
    edges = list(config.bins or ())
    edges = edges or sorted({float(edge) for edge in np.quantile(numbers.to_numpy(), (0.25, 0.5, 0.75))})
    own = [f"below {edges[0]:g}", *(f"{a:g} to below {b:g}" for a, b in pairwise(edges))]
    answers = named or (*own, f"{edges[-1]:g} or more")
    if len(answers) != len(edges) + 1:
        raise BadInput(f"task.answers has {len(answers)} answers for {len(edges) + 1} bins: name one a bin.")
    return answers, pl.Series(np.searchsorted(edges, numbers.to_numpy(), side="right"))


def _ranks(numbers: pl.Series, found: list[float]) -> pl.Series:
    return numbers.replace_strict(found, list(range(len(found))), return_dtype=pl.Int64)
