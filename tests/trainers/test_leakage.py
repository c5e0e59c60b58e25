"""Every run of every task of visits says in its report how the task leaks, in both modes, whichever of them it used."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from ghar.data.tasks.visits import VISIT_TASKS
from ghar.envs.worlds.source import read_source
from ghar.trainers.evaluation.evaluate import evaluate

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task", [*VISIT_TASKS, "labels"])
def test_a_report_says_how_its_task_leaks(task: str, small_config, tmp_path: Path) -> None:
    words = [f"task={task}", "system=baselines", "eval.variants=[usual]", "eval.bootstrap=10", f"run_dir={tmp_path}"]
    if task == "labels":
        visits = read_source(small_config().data, charts=False).visits.drop_nulls("end")
        asked = visits.select("subject_id", prediction_time="start", boolean_value=pl.col("died"))
        asked.write_parquet(tmp_path / "death.parquet")
        words.append(f"task.labels={tmp_path / 'death.parquet'}")
    evaluate(small_config(*words))
    summary, page = json.loads((tmp_path / "summary.json").read_text()), (tmp_path / "report.html").read_text()
    assert "Paper mode (data.leakage=paper)" in page
    if task == "labels":  # no one knows when the outcomes of a label file were there
        assert "audit" not in summary and "leak score of" not in page
        assert "samples whose outcome has no known time (leak score unknown)" in summary["data"]
        return
    audit = summary["audit"]
    paper, strict = audit["modes"]["paper"], audit["modes"]["strict"]
    assert audit["used"] == "paper" and paper["samples"] == strict["samples"] > 0
    assert strict["late"] == 0 == strict["leak_score"] and 0 <= paper["leak_score"] <= 1
    assert paper["leak_score"] == 1 or task != "los"
    assert "<td>paper (this run)</td>" in page and "<td>strict</td>" in page
    assert ("This task leaks" in page) == (paper["leak_score"] >= 0.05)
