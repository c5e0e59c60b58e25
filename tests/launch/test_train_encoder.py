"""One command from tables to the numbers of an encoder; a small share of the patient graph's benchmark."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks import patient_graph as bench_patient_graph
from benchmarks.result import tell
from ghar.envs.graphwalker import series
from ghar.envs.graphwalker.encoders.train import PUBLISHED
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.launch.train_encoder import run

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("task, expected", [
    ("series_readmission", {"auroc", "auprc", "f1", "best_f1"}), ("series_los", {"ma_roc", "mi_roc"}),
])  # fmt: skip
def test_the_demo_world(
    task: str, expected: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = replace(PUBLISHED["adacare"], hidden=16, epochs=2)
    monkeypatch.setattr(series, "series_material", partial(series.series_material, training=short))
    before = torch.get_num_threads()
    run(load([
        "system=graphwalker", f"task={task}", "data.patients=120", f"data.cache={tmp_path}/cache", "eval.bootstrap=20",
        "system.encoder=adacare", "threads=1", f"run_dir={tmp_path}/run",
    ]))  # fmt: skip
    torch.set_num_threads(before)
    found = json.loads((tmp_path / "run/encoder.json").read_text())
    assert set(found["scores"]) == expected and found["encoder"] == "adacare"
    assert all(0 <= value <= 1 for value, _, _ in found["scores"].values())
    said = capsys.readouterr().out
    assert f"adacare on {task.replace('_', '-')}" in said and all(name in said for name in expected)


def test_another_system_has_no_encoder() -> None:
    with pytest.raises(BadInput, match="system=graphwalker"):
        run(load([]))


def test_the_benchmark_of_the_patient_graph(tmp_path: Path) -> None:
    result = bench_patient_graph.patient_graph(tmp_path, 1, share=0.006)
    tell("patient_graph", tmp_path, result)
    assert result == json.loads((tmp_path / "patient_graph.json").read_text())
    assert result["the same as built anew"] == 1 and result["cohorts"] > 5
    assert all(math.isfinite(value) for value in result["runs"][0].values())
    assert [path.name for path in tmp_path.iterdir()] == ["patient_graph.json"]
