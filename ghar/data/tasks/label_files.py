"""Any MEDS label file as a task (task=labels): what ACES, MEDS-DEV or EHRSHOT wrote, or what you made yourself.

value column          answers, unless NAME.json names them
boolean_value         no, yes
categorical_value     the values, in the order of the alphabet
integer_value         the values in order, at most `FEW` of them; 0, 1, ... may stand for the answers of NAME.json
integer, float_value  bins: task.bins, else the quartiles of the file's values; an edge belongs to the bin above it

A file has values in one of these columns. The prediction times are the file's; what is shown at them is said in
`ghar.data.tasks.labelled`. Label files: LabelSchema of the package meds 0.4.1.

task.labels names a file or a folder, or one by its name in the folder labels/ of a MEDS folder; null is the only one
there. NAME.json beside NAME.parquet asks in the user's words: "question" and "labels", the answers in the order of the
values; "title", "category", "factual" and "counterfactual" (what speaks for and against), "meanings" of the answers and
"advice", which EHR-RAG's prompts show. task.question is stronger.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ghar.config import DataConfig
from ghar.config import TaskConfig as TaskConfig
from ghar.data.cohort import Task
from ghar.data.readers.meds_labels import beside_data, once_each, read_labels
from ghar.data.tasks.cards import TaskCard, card_of
from ghar.errors import BadInput

PREFIX = "labels-"  # of the task's name, before the name of the file
FEW, MANY = 10, 50  # whole numbers that are taken as they are; answers at most
IN_WORDS = ("title", "category", "factual", "counterfactual", "advice")


def located(config: TaskConfig, data: DataConfig) -> TaskConfig:
    """The same with task.labels as a path, and the question as the file beside it has it.

    Raises BadInput where there is no label file or none can be told from others, and for a question that is unreadable.
    """
    path = labels_path(config, data)
    return replace(config, labels=str(path), question=config.question or _in_words(path).get("question"))


def label_file_card(config: TaskConfig, data: DataConfig, task: Task) -> TaskCard:
    """How EHR-RAG puts the question: as the file beside the labels has it, and for the rest as for any task."""
    path = labels_path(config, data)
    card, words = card_of(task), _in_words(path)
    own = {key: str(words[key]) for key in IN_WORDS if key in words}
    meanings = tuple(map(str, words.get("meanings", card.meanings)))
    if len(meanings) != len(task.labels):
        raise BadInput(
            f'{_words_file(path)}: "meanings" must be as many as the answers, {len(task.labels)}: correct one of them.'
        )
    return replace(card, meanings=meanings, **own)


def labels_path(config: TaskConfig, data: DataConfig) -> Path:
    """The file or folder of the labels. BadInput where task.labels is null and there is not exactly one."""
    if config.labels is not None:
        return beside_data(data, config.labels) or Path(config.labels)
    folder = Path(data.root or "") / "labels"
    paths = sorted(path for path in folder.glob("*") if path.suffix == ".parquet" or path.is_dir())
    if len(paths) != 1:
        names = ", ".join(path.stem for path in paths) or "none"
        raise BadInput(f"task=labels needs a label file, and {folder} has {names}: set task.labels to one.")
    return paths[0]


def _words_file(path: Path) -> Path:
    return path.with_suffix(".json") if path.suffix == ".parquet" else path.with_name(f"{path.name}.json")


def _in_words(labels: Path) -> dict[str, Any]:
    """What lies beside the labels in the user's words, "labels" as a tuple; empty where nothing does."""
    path = _words_file(labels)
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text())
    except ValueError as error:
        raise BadInput(f"{path} is no JSON ({error}): correct it.") from None
    absent = [key for key in ("question", "labels") if not isinstance(content, dict) or not content.get(key)]
    if absent:
        raise BadInput(f"{path} has no {' and no '.join(absent)}: add what is asked and the possible answers.")
    unknown = sorted(set(content) - {"question", "labels", "meanings", *IN_WORDS})
    if unknown:
        raise BadInput(f"{path} has {unknown[0]!r}, which means nothing here: use {', '.join(IN_WORDS)} or meanings.")
    answers = content["labels"]
    if not isinstance(answers, list) or len(set(map(str, answers))) != len(answers) or len(answers) < 2:
        raise BadInput(f'{path}: "labels" must be two or more different answers, in the order of their numbers.')
    return content | {"question": str(content["question"]), "labels": tuple(map(str, answers))}


def label_file_task(config: TaskConfig) -> tuple[Task, pl.DataFrame]:
    """The task of task.labels, a path (`located`), and subject_id, prediction_time, label in order of both.

    Raises BadInput for a file that is no label file, has values in several columns or of one class alone, or different
    labels of one patient at one time, and for answers that are not those of the file.
    """
    assert config.labels is not None  # `located`
    path = Path(config.labels)
    labels = read_labels(path)
    columns = labels.columns[2:]
    if len(columns) != 1:
        raise BadInput(f"{path} has values in {', '.join(columns)}: leave the column that task=labels is to predict.")
    answers, values = _answers(config, path, columns[0], labels[columns[0]])
    if values.n_unique() < 2:
        only = answers[int(values[0])]
        raise BadInput(f'{path} has one answer alone, "{only}", in all {len(values)} rows: a task needs two.')
    if len(answers) > MANY:
        raise BadInput(f"{path} has {len(answers)} different answers and a task has 2 to {MANY}: make groups of them.")
    words = re.sub(r"[\W_]+", " ", path.stem if path.suffix else path.name).strip()
    question = config.question or f"What will be so of this patient: {words}?"
    rows = labels.select("subject_id", "prediction_time").with_columns(label=values.cast(pl.Int64))
    rows = once_each(rows, path)
    return Task(PREFIX + words.replace(" ", "_").lower(), question, answers), rows


def _answers(config: TaskConfig, path: Path, column: str, values: pl.Series) -> tuple[tuple[str, ...], pl.Series]:
    """The answers in order, and the number of each value's own."""
    named = _in_words(path).get("labels")
    if column in ("integer_value", "float_value"):
        return _of_numbers(config, path, named, values)
    if config.bins is not None:
        raise BadInput(f"task.bins cuts numbers, but {path} has {column}: leave it out.")
    if values.null_count():
        raise BadInput(f"{path} has {values.null_count()} rows without {column}: correct the label file.")
    if column == "boolean_value":
        answers = named or ("no", "yes")
        if len(answers) != 2:
            raise BadInput(f"There are {len(answers)} answers, but {path} is true or false: name 2, no first.")
        return answers, values.cast(pl.Int64)
    unique_values = sorted(values.unique())
    if named is not None and (unknown := [value for value in unique_values if value not in named]):
        file = _words_file(path).name
        raise BadInput(f"{path} has values that {file} does not name ({', '.join(unknown[:5])}): name them too.")
    answers = named or tuple(unique_values)
    return answers, values.replace_strict(list(answers), list(range(len(answers))), return_dtype=pl.Int64)


def _of_numbers(
    config: TaskConfig, path: Path, named: tuple[str, ...] | None, values: pl.Series
) -> tuple[tuple[str, ...], pl.Series]:
    numbers = values.cast(pl.Float64)
    if not numbers.is_finite().fill_null(False).all():
        raise BadInput(f"{path} has values that are no finite numbers: correct the label file.")
    levels = sorted(numbers.unique())
    if config.bins is None and values.dtype.is_integer() and (len(levels) <= FEW or named is not None):
        if named is None:
            return tuple(f"{value:g}" for value in levels), _ranks(numbers, levels)
        if levels[0] >= 0 and levels[-1] < len(named):
            return named, values.cast(pl.Int64)
        if len(levels) == len(named):
            return named, _ranks(numbers, levels)
        raise BadInput(
            f"{_words_file(path)} has {len(named)} labels, but {path.name} has whole numbers from {levels[0]:g} to "
            f"{levels[-1]:g}: name one a number, or set task.bins."
        )
    edges = list(config.bins or ())
    edges = edges or sorted({float(edge) for edge in np.quantile(numbers.to_numpy(), (0.25, 0.5, 0.75))})
    own = [f"below {edges[0]:g}", *(f"{a:g} to below {b:g}" for a, b in pairwise(edges))]
    answers = named or (*own, f"{edges[-1]:g} or more")
    if len(answers) != len(edges) + 1:
        raise BadInput(f"{_words_file(path)} has {len(answers)} labels for {len(edges) + 1} bins: name one a bin.")
    return answers, pl.Series(np.searchsorted(edges, numbers.to_numpy(), side="right"))


def _ranks(numbers: pl.Series, levels: list[float]) -> pl.Series:
    return numbers.replace_strict(levels, list(range(len(levels))), return_dtype=pl.Int64)
