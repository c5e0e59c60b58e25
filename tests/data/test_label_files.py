"""task=labels: any MEDS label file is a task, for every kind of value."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ghar.config import TaskConfig
from ghar.data.tasks.cards import card_of
from ghar.data.tasks.label_files import label_file_card, label_file_task, located
from ghar.data.tasks.visits import read_task, visit_samples
from ghar.envs.kare.graph.considerations import considerations_of
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.data.small import DAY, START, small_cohort
from tests.data.test_tasks_visits import data_in, task_named


def label_file(root, column: str, values: list, name: str = "in_icu mortality.parquet"):
    """One label a day of patient 1."""
    frame = pl.DataFrame({"subject_id": [1] * len(values), column: values})
    times = pl.Series([START + n * DAY for n in range(len(values))], dtype=pl.Datetime("us"))
    frame.with_columns(prediction_time=times).write_parquet(root / name)
    return replace(task_named("labels"), labels=str(root / name))


def with_words(config: TaskConfig, labels: tuple[str, ...] = (), **more: Any) -> TaskConfig:
    """The same with NAME.json beside the labels, where it names answers."""
    if labels:
        words = {"question": "Will this be so: in icu mortality?", "labels": labels}
        Path(config.labels or "").with_suffix(".json").write_text(json.dumps(words))
    return replace(config, **more)


@pytest.mark.parametrize(
    "column, values, more, answers, expected",
    [
        ("boolean_value", [True, False], {}, ("no", "yes"), [1, 0]),
        ("boolean_value", [True, False], {"labels": ("stays", "dies")}, ("stays", "dies"), [1, 0]),
        ("categorical_value", ["b", "a", "b"], {}, ("a", "b"), [1, 0, 1]),
        ("categorical_value", ["b", "a"], {"labels": ("b", "c", "a")}, ("b", "c", "a"), [0, 2]),
        ("integer_value", [3, 1, 7], {}, ("1", "3", "7"), [1, 0, 2]),
        ("integer_value", [0, 2], {"labels": ("none", "mild", "severe")}, ("none", "mild", "severe"), [0, 2]),
        ("integer_value", [5, 9], {"labels": ("few", "many")}, ("few", "many"), [0, 1]),
        ("integer_value", [5, 9], {"bins": (6.0,)}, ("below 6", "6 or more"), [0, 1]),
        ("float_value", [1.0, 2.0, 2.5, 9.0], {"bins": (2.0, 3.0)}, ("below 2", "2 to below 3", "3 or more"),
         [0, 1, 1, 2]),
        ("float_value", [1.0, 3.0], {"bins": (2.0,), "labels": ("low", "high")}, ("low", "high"), [0, 1]),
        ("float_value", [float(n) for n in range(8)], {},
         ("below 1.75", "1.75 to below 3.5", "3.5 to below 5.25", "5.25 or more"), [0, 0, 1, 1, 2, 2, 3, 3]),
        ("integer_value", list(range(12)), {}, ("below 2.75", "2.75 to below 5.5", "5.5 to below 8.25", "8.25 or more"),
         [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]),
    ],
)  # fmt: skip
def test_every_kind_of_value(tmp_path, column, values, more, answers, expected):
    about, rows = label_file_task(with_words(label_file(tmp_path, column, values), **more))
    assert about.labels == answers and rows["label"].to_list() == expected
    assert about.name == "labels-in_icu_mortality" and "in icu mortality" in about.question
    assert card_of(about).title == "In icu mortality" and considerations_of(about.name)


@pytest.mark.parametrize(
    "column, values, more, sentence",
    [
        ("boolean_value", [True, True], {}, 'one answer alone, "yes", in all 2 rows: a task needs two'),
        ("boolean_value", [True, False], {"labels": ("a", "b", "c")}, "is true or false: name 2"),
        ("boolean_value", [True, False], {"bins": (1.0,)}, "task.bins cuts numbers"),
        ("categorical_value", ["a", "b"], {"labels": ("a", "c")}, "does not name .b."),
        ("categorical_value", [str(n) for n in range(60)], {}, "2 to 50"),
        ("float_value", [1.0, float("nan")], {}, "no finite numbers"),
        ("float_value", [1.0, 2.0], {"bins": (1.5,), "labels": ("a", "b", "c")}, "3 labels for 2 bins"),
        ("integer_value", [0, 5], {"labels": ("a", "b", "c")}, "whole numbers from 0 to 5"),
    ],
)  # fmt: skip
def test_what_is_no_task(tmp_path, column, values, more, sentence):
    with pytest.raises(BadInput, match=sentence):
        label_file_task(with_words(label_file(tmp_path, column, values), **more))


def test_a_file_that_holds_no_labels_says_why(tmp_path):
    path = Path(label_file(tmp_path, "boolean_value", [True, False]).labels or "")
    frame = pl.read_parquet(path)
    for change, sentence in (
        (frame.clear(), "has no rows, so there is no label"),
        (frame.rename({"boolean_value": "died"}), "no column of labels .it has subject_id, died, prediction_time."),
    ):
        change.write_parquet(path)
        with pytest.raises(BadInput, match=sentence):
            label_file_task(replace(task_named("labels"), labels=str(path)))
    frame.select("subject_id").write_csv(path)
    with pytest.raises(BadInput, match="is no Parquet file: convert it to Parquet"):
        label_file_task(replace(task_named("labels"), labels=str(path)))
    path.write_bytes(b"PAR1 cut short")
    with pytest.raises(BadInput, match="copy the file again"):
        label_file_task(replace(task_named("labels"), labels=str(path)))


def test_samples_show_what_was_there(tmp_path):
    """Only what has begun by the prediction time, as for EHRSHOT's tasks; the question is the user's."""
    cohort = small_cohort([(1, 1, START, START + 3 * DAY, None)], [(1, 1, "ICD9CM/1", START + 3 * DAY)])
    task = replace(label_file(tmp_path, "boolean_value", [True, False, True, False]), question="Will it rain?")
    about, samples = visit_samples(cohort, task, "paper")
    assert about.question == "Will it rain?" and [s.label for s in samples] == [1, 0, 1, 0]
    assert [s.history[-1].diagnoses for s in samples] == [(), (), (), ("ICD9CM/1",)]
    assert [s.prediction_time - START for s in samples] == [timedelta(days=n) for n in range(4)]


def test_the_split_that_comes_with_a_meds_folder_is_taken(tmp_path, meds_cohort):
    people = meds_cohort.visits["subject_id"].unique().sort()
    (tmp_path / "metadata").mkdir()
    cut = ["train"] * 60 + ["tuning"] * 20 + ["held_out"] * 20
    pl.DataFrame({"subject_id": people, "split": cut}).write_parquet(tmp_path / "metadata" / "subject_splits.parquet")
    ends = meds_cohort.visits.drop_nulls("end")
    labels = ends.select("subject_id", prediction_time="end", boolean_value="died")
    labels.write_parquet(tmp_path / "died.parquet")
    task = replace(task_named("labels"), labels=str(tmp_path / "died.parquet"))
    found = read_task(meds_cohort, data_in(tmp_path), task)
    assert {s.subject_id for s in found.splits.test} <= set(people[80:]) and len(found.samples) == ends.height
    drawn = read_task(meds_cohort, data_in(tmp_path, name="mimic4"), task)
    assert {s.subject_id for s in drawn.splits.test} - set(people[80:])


@pytest.mark.parametrize(
    "overrides, sentence",
    [
        (["task=labels"], "task=labels needs a file"),
        (["task=read", "task.question=Why"], "task=read has labels of its own and does not read task.question"),
        (["task=labels", "task.labels=a.parquet", "task.bins=[2,1]"], "must be rising numbers"),
    ],
)
def test_contradictions(overrides, sentence):
    with pytest.raises(BadInput, match=sentence):
        load(overrides)


def test_labels_beside_the_data_and_a_question_in_the_users_words(tmp_path):
    """By name, without a name where they are the only ones, by path; task.question is stronger."""
    labels, data = tmp_path / "labels", data_in(tmp_path)
    labels.mkdir()
    label_file(labels, "integer_value", [0, 2, 1], "revised.parquet")
    words = {"question": "Revised?", "labels": ["no", "once", "often"], "advice": "Think."}
    (labels / "revised.json").write_text(json.dumps(words))
    for named in (None, "revised", str(labels / "revised.parquet")):
        config = replace(task_named("labels"), labels=named)
        about, rows = label_file_task(located(config, data))
        assert (about.question, about.labels) == ("Revised?", ("no", "once", "often"))
        assert rows["label"].to_list() == [0, 2, 1] and about.name == "labels-revised"
        card = label_file_card(config, data, about)
        assert (card.description, card.advice, card.meanings) == ("Revised?", "Think.", about.labels)
    stronger = replace(task_named("labels"), question="Why?")
    assert label_file_task(located(stronger, data))[0].labels == ("no", "once", "often")
    assert located(stronger, data).question == "Why?"
    (labels / "other").mkdir()
    with pytest.raises(BadInput, match="has other, revised: set"):
        located(task_named("labels"), data)
    (labels / "revised.json").write_text('{"question": "?", "labels": ["a", "b", "c"], "meanings": ["d"]}')
    with pytest.raises(BadInput, match='"meanings" must be as many as the answers, 3'):
        label_file_card(replace(task_named("labels"), labels="revised"), data, about)
