"""Models from elsewhere as rows of a study: any number of labels, CSV or Parquet, holes that name the file."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from ghar.data.tasks.summary_files import SummarisedText
from ghar.errors import BadInput
from ghar.trainers.study.outside import read_outside, read_sets, read_summaries, with_outside
from ghar.trainers.study.run import run_study
from ghar.trainers.study.verify import verify
from tests.trainers.test_study import CONTENT, quiet, workshop

pytestmark = pytest.mark.slow

LABELS = ("0", "1", "2")
SAMPLES = pl.DataFrame({"sample_id": ["a", "b"], "subject_id": ["1", "2"], "label": ["0", "2"]})


def test_rows_of_a_model_from_elsewhere(tmp_path: Path, world_cache: Path) -> None:
    """Right answers of two tasks, one with ten labels; the seed that has no file is a hole which names it."""
    folder = tmp_path / "grasp"
    folder.mkdir()
    runs = [run for run in CONTENT["runs"] if run["name"] == "two"]
    rows = [row for row in CONTENT["rows"] if row["run"] == "two"]
    made, _ = workshop(tmp_path / "study", world_cache, runs=runs, rows=rows, main="poor")
    made = replace(made, study=with_outside(made.study, {"grasp": str(folder)}, {}))
    numbers = run_study(made, quiet)
    hole = numbers["main-demo"]["cells"]["grasp"]["los/accuracy"]["all"]["hole"]
    named = re.search(r"there is no demo-los-seed0\.parquet in .*; the samples are in (.*\.parquet)", hole)
    assert named is not None
    for task in ("read", "los"):
        where = numbers["main-demo"]["cells"]["grasp"][f"{task}/accuracy"]["all"]["hole"].rpartition(" ")[2]
        test = pl.read_parquet(where).filter(pl.col("split") == "test")
        right = test.select("sample_id", prediction="label")
        right.write_csv(folder / f"demo-{task}.csv") if task == "los" else right.write_parquet(
            folder / f"demo-{task}-seed0.parquet"
        )
    numbers = run_study(made, quiet)
    cells = numbers["main-demo"]["cells"]["grasp"]
    assert cells["los/accuracy"]["all"]["value"] == 1 and cells["los/accuracy"]["all"]["seeds"] == [0, 1]
    assert cells["read/accuracy"]["all"]["seeds"] == [0]
    assert "no label probabilities" in cells["los/auroc"]["all"]["hole"]
    assert numbers["main-demo"]["tests"]["grasp"]["los/accuracy"]["all"]["difference"] < 0
    assert numbers["sex-demo"]["cells"]["grasp"]["read/accuracy"]["female"]["value"] == 1
    assert not verify(made.folder.path).wrong
    more = replace(made, study=with_outside(made.study, {"late": str(folder)}, {}))  # one that is named later
    assert run_study(more, quiet)["main-demo"]["cells"]["late"]["los/accuracy"]["all"]["value"] == 1
    with pytest.raises(BadInput, match="holds another study"):
        run_study(replace(more, study=replace(more.study, seeds=(0,))), quiet)
    made = more
    right.with_columns(prediction=pl.lit("0")).write_csv(folder / "demo-los.csv")  # another model by the same name
    assert run_study(made, quiet)["main-demo"]["cells"]["grasp"]["los/accuracy"]["all"]["value"] < 1


@pytest.mark.parametrize("columns, sentence", [
    ({"sample_id": ["a", "b"]}, "needs columns sample_id and prediction"),
    ({"sample_id": ["a", "b"], "prediction": ["0", "7"]}, "sample b has the prediction '7', which is none of 0, 1, 2"),
    ({"sample_id": ["a"], "probability_0": [1.0], "probability_2": [0.0]}, "has no column probability_1"),
    ({"sample_id": ["a"]} | {f"probability_{label}": [0.5] for label in LABELS}, "of sample a do not add up to 1"),
    ({"sample_id": ["a"]} | {f"probability_{label}": [float("nan")] for label in LABELS},
     "a probability of sample a is not a number"),
    ({"sample_id": ["b"]} | {f"probability_{label}": ["0,3"] for label in LABELS},
     "probability_0 of sample b is '0,3', which is no number: write it with a decimal point"),
])  # fmt: skip
def test_what_is_wrong_with_a_file_is_a_sentence(tmp_path: Path, columns: dict[str, Any], sentence: str) -> None:
    for path in (tmp_path / "x.parquet", tmp_path / "x.csv"):
        frame = pl.DataFrame(columns)
        frame.write_csv(path) if path.suffix == ".csv" else frame.write_parquet(path)
        with pytest.raises(BadInput, match=re.escape(sentence)):
            read_outside(path, LABELS, SAMPLES)


def test_probabilities_alone_are_answers(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("sample_id,probability_0,probability_1,probability_2\na,0.1,0.2,0.7\nb,0,0,1\n")
    found = read_outside(path, LABELS, SAMPLES)
    assert found["prediction"].to_list() == ["2", "2"] and found["correct"].to_list() == [False, True]
    assert found["probabilities"].to_list() == [[0.1, 0.2, 0.7], [0.0, 0.0, 1.0]]
    path.write_text("sample_id,prediction\na,\nb,1\n")
    found = read_outside(path, LABELS, SAMPLES)
    assert found["prediction"].to_list() == [None, "1"] and found["correct"].to_list() == [False, False]
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"x\.csv"):
        read_outside(path, LABELS, SAMPLES)


def test_a_row_stands_where_its_numbers_are_published(tmp_path: Path, world_cache: Path) -> None:
    tables = [
        {"name": "first", "title": "First", "rows": ["poor"]},
        {"name": "beside", "title": "Beside", "rows": ["poor"], "published": {"demo": "some.I"}},
        {"name": "third", "title": "Third", "rows": ["poor"]},
    ]
    made, _ = workshop(tmp_path, world_cache, tables=tables, paper={"source": "A paper", "keys": {}})
    published = {"some.I": {"cells": {"grasp": {"los/accuracy": 0.4}}}}
    study = with_outside(made.study, {"grasp": "/x", "other": "/y"}, published)
    assert [table.rows for table in study.tables] == [("poor", "grasp", "other"), ("poor", "grasp"), ("poor",)]
    for name in ("poor", "one", "a/b"):
        with pytest.raises(BadInput, match="choose another name"):
            with_outside(study, {name: "/x"}, published)


TEXTS = {
    "a": SummarisedText("a", "Seen for gout.", "A patient with gout."),
    "b": SummarisedText("b", "Weak for weeks.", "Scurvy."),
}
WRITINGS = pl.DataFrame({"sample_id": ["a", "b", "c"], "subject_id": ["1", "2", "3"], "label": ["written"] * 3})


@pytest.mark.parametrize("end", ["csv", "parquet"])
def test_summaries_from_elsewhere_are_measured_and_not_kept(end: str, tmp_path: Path) -> None:
    """As those of any system; one that is empty is no text, and one of another split has no reference here."""
    frame = pl.DataFrame({"sample_id": ["a", "b", "c"], "summary": [" A patient with pain. ", None, "Words."]})
    path = tmp_path / f"x.{end}"
    frame.write_csv(path) if end == "csv" else frame.write_parquet(path)
    found = read_summaries(path, TEXTS, WRITINGS)
    assert found["prediction"].to_list() == ["written", None, "written"]
    assert found["correct"].to_list() == [True, False, True]
    assert found["rouge_1"].to_list() == [pytest.approx(0.75), 0, None] and found["bleu_1"][0] == pytest.approx(3 / 4)
    assert "summary" not in found.columns
    frame.rename({"summary": "prediction"}).write_csv(tmp_path / "y.csv")
    with pytest.raises(BadInput, match=r"y\.csv needs columns sample_id and summary; it has sample_id, prediction"):
        read_summaries(tmp_path / "y.csv", TEXTS, WRITINGS)


def test_sets_of_options_from_elsewhere_are_right_in_any_order_and_have_an_f1(tmp_path: Path) -> None:
    samples = pl.DataFrame({"sample_id": ["a", "b", "c"], "subject_id": ["1", "2", "3"], "label": ["AC", "B", "ABD"]})
    path = tmp_path / "x.csv"
    path.write_text('sample_id,prediction\na,"C, A"\nb,\nc,AB\n')
    options = {"a": 4, "b": 4, "c": 30}
    found = read_sets(path, options, samples)
    assert found["prediction"].to_list() == ["AC", None, "AB"] and found["correct"].to_list() == [True, False, False]
    assert found["options_f1"].to_list() == pytest.approx([1.0, 0.0, 0.8]) and found["probabilities"].null_count() == 3
    path.write_text("sample_id,prediction\na,c a\nc,a\n")  # of 30 options a is the 27th
    assert read_sets(path, options, samples)["options_f1"].to_list() == [1.0, 0.0]
    for wrong in ("gout", "AA", "A1", "A and C", "AND", "yes", "E"):
        path.write_text(f"sample_id,prediction\na,{wrong}\n")
        with pytest.raises(BadInput, match=rf"sample a has the prediction '{wrong}', which is no set of its 4 options"):
            read_sets(path, options, samples)
