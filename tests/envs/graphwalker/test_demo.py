"""The whole recipe on the world of cases, as small as can be: it runs from one command, and effort holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ghar.launch.entry import load
from ghar.trainers.recipe import train

pytestmark = pytest.mark.slow

SMALL = (
    "+experiment=graphwalker_demo", "data.patients=150", "model.hidden=16", "model.layers=1",
    "trainer.base.steps=3", "trainer.base.batch=8", "trainer.warmup.samples=40", "trainer.warmup.batch=8",
    "trainer.warmup.micro_batch=8", "trainer.warmup.epochs=1", "trainer.rl.updates=1", "trainer.rl.episodes=8",
    "trainer.rl.eval_samples=6", "task.max_test=8", "task.max_valid=8", "system.k_g=4", "system.effort=12",
    "eval.bootstrap=20", "threads=1", "eval.variants=[graphwalker,zero_shot,delta_knn,supervised,scripted_alike]",
)  # fmt: skip


def test_from_one_command_to_a_table(tmp_path: Path) -> None:
    train(load([*SMALL, f"data.cache={tmp_path / 'cache'}", f"run_dir={tmp_path / 'run'}"]))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert set(summary["policies"]) == {"graphwalker", "zero_shot", "delta_knn", "supervised", "scripted_alike"}
    assert summary["answered_by"]["supervised"] == "supervised" and summary["answered_by"]["graphwalker"] == "trained"
    assert 0 < summary["ceilings"]["parametric"] < summary["ceilings"]["examples"] <= summary["ceilings"]["truth"]
    assert summary["generated"] and not summary["credentialed"]
    for name in ("graphwalker", "delta_knn"):
        lines = (tmp_path / "run" / "episodes" / f"{name}.jsonl").read_text().splitlines()
        spent = [json.loads(line)["cost"]["prompts"] for line in lines]
        assert len(spent) == 8 and 0 < sum(spent) / len(spent) <= 12, name
