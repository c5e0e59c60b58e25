"""A benchmark's own labels and split, which may lie beside a MEDS folder's data.

labels/<task>.parquet, or a folder labels/<task>   used in place of counted labels
task.labels=FILE with task=labels                  any label file, wherever it lies
labels/given.parquet with labels/given.json        any other question (task=given), put in the user's own words
metadata/subject_splits.parquet                    cuts the patients of tasks whose labels are given

given.json has "question" and "labels", the possible answers in the order of their numbers, and may have what EHR-RAG's
prompts say besides: "title", "category", "factual" and "counterfactual" (what speaks for and against), "meanings" of
the answers, "advice".
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import polars as pl

from ghar.config import Data
from ghar.config import Task as TaskConfig
from ghar.data.cohort import Cohort, Task
from ghar.data.readers.meds_labels import read_labels, read_subject_splits
from ghar.data.tasks.cards import TaskCard, card_of
from ghar.data.tasks.ehrshot import TASKS, EhrshotTask, Labels, ehrshot_labels, label_indices, require_labels
from ghar.data.tasks.splits import S, Splits, split_as_given, split_by_patient
from ghar.errors import BadInput

GIVEN = "given"  # name of the task, and of its files
IN_WORDS = ("title", "category", "factual", "counterfactual", "advice")


def label_rows(cohort: Cohort, data: Data, name: EhrshotTask | Literal["given"]) -> Labels:
    """subject_id, prediction_time, label of one of EHRSHOT's tasks, given or counted, and counts for the report.

    Raises BadInput where there is none, and as `given_labels` and `ehrshot_labels` do.
    """
    labels = given_labels(data, name)
    if labels is None and name == GIVEN:
        raise BadInput(
            f"{_folder(data) / GIVEN}.parquet does not exist: task={GIVEN} asks for the labels that lie there."
        )
    if labels is not None:
        counts = {"labels that came with the data": labels.height}
    else:
        labels, left_out = ehrshot_labels(cohort, cast(EhrshotTask, name))
        counts = {f"left out, {rule}": n for rule, n in left_out.items()}
    require_labels(labels, cohort, name)
    return labels, counts


def given_labels(data: Data, name: str) -> pl.DataFrame | None:
    """The labels that came with the data, as `label_indices` returns them; None where there are none.

    Raises BadInput for a file that is no MEDS label file, or not of this task.
    """
    path = _label_path(data, name)
    if path is None:
        return None
    return label_indices(read_labels(path), given_task(data) if name == GIVEN else TASKS[name])


def given_task(data: Data) -> Task:
    """The question that came with the data. BadInput where there is none, or one that cannot be read."""
    path = _folder(data) / f"{GIVEN}.json"
    labels = _question(path)["labels"]
    if not isinstance(labels, list) or len(set(map(str, labels))) != len(labels) or len(labels) < 2:
        raise BadInput(f'{path}: "labels" must be two or more different answers, in the order of their numbers.')
    return Task(GIVEN, str(_question(path)["question"]), tuple(map(str, labels)))


def given_card(data: Data, task: Task) -> TaskCard:
    """How EHR-RAG puts the question: what came with the data, and for the rest what is made for any task."""
    path = _folder(data) / f"{GIVEN}.json"
    card, told = card_of(task), _question(path)
    own = {key: str(told[key]) for key in IN_WORDS if key in told}
    meanings = tuple(map(str, told.get("meanings", card.meanings)))
    if len(meanings) != len(task.labels):
        raise BadInput(f'{path}: "meanings" must be as many as "labels", {len(task.labels)}: correct one of them.')
    return replace(card, meanings=meanings, **own)


def _question(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise BadInput(f'{path} does not exist: write {{"question": "...?", "labels": ["no", "yes"]}} there.')
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise BadInput(f"{path} is no JSON ({error}): correct it.") from None
    absent = [key for key in ("question", "labels") if not isinstance(found, dict) or not found.get(key)]
    if absent:
        raise BadInput(f"{path} has no {' and no '.join(absent)}: add what is asked and the possible answers.")
    unknown = sorted(set(found) - {"question", "labels", "meanings", *IN_WORDS})
    if unknown:
        raise BadInput(f"{path} has {unknown[0]!r}, which means nothing here: use {', '.join(IN_WORDS)} or meanings.")
    return found


def given_splits(data: Data, name: str) -> dict[int, str] | None:
    """The split of each patient that came with the labels; None where labels or split did not come with the data."""
    if data.name != "meds" or data.root is None or (name != "labels" and _label_path(data, name) is None):
        return None
    path = Path(data.root) / "metadata" / "subject_splits.parquet"
    return read_subject_splits(Path(data.root)) if path.exists() else None


def split_samples(
    samples: Sequence[S],
    task: TaskConfig,
    given: Mapping[int, str] | None = None,
    everyone: Iterable[int] | None = None,
) -> Splits[S]:
    """Train, validation and test samples as given, else drawn by patient; at most task.max_train and so on of each.

    everyone: the patients that are drawn from, those of the samples by default. Raises BadInput as `split_as_given` and
    `split_by_patient` do.
    """
    if given is None:
        splits = split_by_patient(samples, task.split, task.split_seed, everyone)
    else:
        splits = split_as_given(samples, given)
    return Splits(splits.train[: task.max_train], splits.valid[: task.max_valid], splits.test[: task.max_test])


def _label_path(data: Data, name: str) -> Path | None:
    """The file, or folder, of a task's labels; the other tasks count theirs."""
    if data.name != "meds" or data.root is None or name not in (*TASKS, GIVEN):
        return None
    folder = _folder(data)
    return next((path for path in (folder / f"{name}.parquet", folder / name) if path.exists()), None)


def _folder(data: Data) -> Path:
    """Where labels lie beside the data. BadInput for data that cannot have any."""
    if data.name != "meds" or data.root is None:
        raise BadInput(f"task={GIVEN} asks a question that lies beside the data: it needs data=meds and data.root.")
    return Path(data.root) / "labels"
