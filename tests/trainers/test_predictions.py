"""Predictions go out in meds-evaluation's schema, and any other model's come into our tables so."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.data.readers.mimic4 import read_mimic4
from ghar.errors import BadInput
from ghar.launch.compare import main
from ghar.launch.entry import load
from ghar.launch.export_meds import run as export
from ghar.trainers.evaluation.compare import ComparedSystem, compare
from ghar.trainers.evaluation.evaluate import evaluate
from ghar.trainers.evaluation.predictions import ExternalModel, read_predictions
from tests.running import run_command

pytestmark = pytest.mark.slow

SCHEMA = {
    "subject_id": pl.Int64(), "prediction_time": pl.Datetime("us"), "boolean_value": pl.Boolean(),
    "predicted_boolean_value": pl.Boolean(), "predicted_boolean_probability": pl.Float32(),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Baselines on a label file of the open MIMIC-IV demo: a stay of a week or longer, asked a day after admission."""
    root = tmp_path_factory.mktemp("labels")
    visits = read_mimic4(shared_data / "mimic-iv-demo-2.2", charts=False).visits.drop_nulls("end")
    visits.select(
        "subject_id",
        prediction_time=pl.col("start") + pl.duration(days=1),
        boolean_value=pl.col("end") - pl.col("start") >= pl.duration(days=7),
    ).write_parquet(root / "long_stay.parquet")
    evaluate(load([*shared(root, shared_data), "system=baselines", f"run_dir={root / 'run'}",
                   "eval.variants=[counts_lr,usual]"]))  # fmt: skip
    return root


def shared(root: Path, shared_data: Path) -> list[str]:
    return [
        "data=mimic4", f"data.root={shared_data / 'mimic-iv-demo-2.2'}", f"data.cache={root / 'cache'}", "task=labels",
        f"task.labels={root / 'long_stay.parquet'}", "task.question='Will this stay last a week?'", "eval.bootstrap=20",
    ]  # fmt: skip


def test_predictions_and_their_split_are_written(run):
    place = run / "run" / "predictions"
    frame = pl.read_parquet(place / "counts_lr.parquet")
    assert dict(frame.schema) == SCHEMA and frame.null_count().sum_horizontal().item() == 0
    rows = [json.loads(line) for line in (run / "run/episodes/counts_lr.jsonl").read_text().splitlines()]
    right = (frame["boolean_value"] == frame["predicted_boolean_value"]).mean()
    assert len(rows) == frame.height and right == pytest.approx(np.mean([row["correct"] for row in rows]))
    splits = dict(pl.read_parquet(place / "subject_splits.parquet").rows())
    assert {splits[subject] for subject in frame["subject_id"]} == {"held_out"} and set(splits.values()) == {
        "train", "tuning", "held_out"}  # fmt: skip
    assert json.loads((place / "unanswered.json").read_text()) == {"counts_lr": 0, "usual": 0}
    assert read_predictions(place / "usual.parquet").height == frame.height
    summary = json.loads((run / "run/summary.json").read_text())
    assert summary["task"]["question"] == "Will this stay last a week?"


def test_other_models_predictions_enter_the_table(run, shared_data):
    """Our own file as another model's: the same numbers, and a difference of 0."""
    file = run / "run/predictions/counts_lr.parquet"
    main(["systems=[baselines]", "variants=[counts_lr]", f"predictions=[theirs:{file}]", f"run_dir={run / 'both'}",
          *shared(run, shared_data)])  # fmt: skip
    summary = json.loads((run / "both/summary.json").read_text())
    ours, theirs = (summary["policies"][name] for name in ("baselines.counts_lr", "theirs.predictions"))
    for number in ("accuracy", "macro_f1", "auroc"):
        assert ours[number] == theirs[number] and ours[number] is not None, number
    assert summary["answered_by"]["theirs.predictions"] == "a model from outside"
    costs = {"calls", "tokens", "lookups", "seconds", "retrieval_rate", "iterations"}
    assert costs <= ours.keys() and not costs & theirs.keys()  # unknown, not 0
    assert (run / "both/predictions/theirs.predictions.parquet").is_file()
    assert "theirs" in (run / "both/report.html").read_text()


@pytest.mark.parametrize(
    "change, sentence",
    [
        (pl.col("boolean_value").not_(), "has another truth in"),
        (pl.col("prediction_time") + pl.duration(days=900), "has no prediction of a test sample"),
        (pl.lit(1.5, pl.Float32).alias("predicted_boolean_probability"), "rows without patient, time, truth"),
        (pl.lit(1, pl.Int64).alias("subject_id"), "has several predictions|has no prediction"),
    ],
)
def test_predictions_of_something_else_are_refused(run, shared_data, tmp_path, monkeypatch, change, sentence):
    frame = pl.read_parquet(run / "run/predictions/counts_lr.parquet").with_columns(change)
    frame.write_parquet(tmp_path / "a.parquet")
    monkeypatch.setattr("ghar.trainers.evaluation.compare.played", lambda *_: pytest.fail("a system plays"))
    with pytest.raises(BadInput, match=sentence):
        main(["systems=[baselines]", "variants=[usual]", f"predictions=[a:{tmp_path / 'a.parquet'}]",
              f"run_dir={tmp_path / 'r'}", *shared(run, shared_data)])  # fmt: skip


def test_a_system_that_is_named_twice_is_refused() -> None:
    with pytest.raises(BadInput, match=r"^systems=\[ghar,ghar\] names ghar twice: leave one out\.$"):
        main(["systems=[ghar,ghar]", "task=read"])


WANTED = r"see docs/comparing\.md for the columns: subject_id, prediction_time, boolean_value, predicted_boolean_value"


@pytest.mark.parametrize(("task", "drops", "sentence"), [
    ("read", None, rf"There is no file of predictions .*a\.parquet: correct the path; {WANTED}"),
    ("read", ["prediction_time"], rf"a\.parquet has no column prediction_time \(it has .*\): {WANTED}"),
    ("read", ["predicted_boolean_value", "predicted_boolean_probability"], rf"has neither of predicted_.*{WANTED}"),
    ("los", [], r"a\.parquet cannot be compared on task=los: only tasks of visits with two answers .*comparing\.md"),
    ("summary", [], r"a\.parquet cannot be compared on task=summary: only tasks of visits with two answers"),
])  # fmt: skip
def test_a_file_that_cannot_be_compared_is_refused_before_tables_are_read(tmp_path, monkeypatch, task, drops, sentence):
    file = tmp_path / "a.parquet"
    if drops is not None:
        pl.DataFrame(schema=SCHEMA).drop(drops).write_parquet(file)
    monkeypatch.setattr("ghar.trainers.evaluation.compare.Records", lambda *_: pytest.fail("records are opened"))
    with pytest.raises(BadInput, match=sentence):
        config = replace(load(["system=baselines", "task=read"]), task=replace(load(["task=los"]).task, name=task))
        compare([ComparedSystem("baselines", config, "")], [], [], tmp_path / "r", [ExternalModel("a", file)])


def test_a_label_file_of_generated_patients(tmp_path):
    """GHAR's teacher knows severities, which do not say the labels of a file: it goes by the training labels then."""
    small = ["data.patients=60", f"data.cache={tmp_path / 'cache'}", "eval.bootstrap=10"]
    export(load([*small, "task=read", f"run_dir={tmp_path}"]))
    file = tmp_path / "meds/labels/read.parquet"
    evaluate(load([*small, "task=labels", f"task.labels={file}", "system=ghar", "eval.variants=[scripted]",
                   f"run_dir={tmp_path / 'run'}", "retriever=tfidf"]))  # fmt: skip
    assert read_predictions(tmp_path / "run/predictions/scripted.parquet").height > 0


@pytest.mark.parametrize("text", ["theirs", "baselines:a.parquet", ":a.parquet", "a/b:c.parquet"])
def test_how_predictions_are_named(text):
    with pytest.raises(BadInput, match=r"write NAME:FILE\.parquet"):
        main(["systems=[baselines]", "task=read", f"predictions=[{text}]"])


def test_meds_evaluation_reads_them(run):
    """The project's own command, where it is installed (on the PATH, or in the folder GHAR_MEDS_TOOLS)."""
    tool = shutil.which("meds-evaluation-cli", path=os.environ.get("GHAR_MEDS_TOOLS")) or shutil.which(
        "meds-evaluation-cli"
    )
    if tool is None:
        pytest.skip("meds-evaluation is not installed: pip install meds-evaluation in an environment of its own")
    file, out = run / "run/predictions/counts_lr.parquet", run / "evaluated.json"
    command = [tool, f"predictions_path={file}", f"output_file={out}"]
    run_command(command, cwd=run).check_returncode()
    theirs = json.loads(out.read_text())["samples_equally_weighted"]
    ours = json.loads((run / "run/summary.json").read_text())["policies"]["counts_lr"]
    assert theirs["binary_accuracy"] == pytest.approx(ours["accuracy"][0])
    assert theirs["roc_auc_score"] == pytest.approx(ours["auroc"][0], abs=1e-6)
