"""Two processes under torchrun train a system as one does, with and without DeepSpeed."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from ghar.launch.entry import load
from ghar.trainers.recipe import train
from tests.running import run_python
from tests.systems.gradient_steps import GradientSteps
from tests.systems.test_contract import OWN, SMALL, numbers

pytestmark = pytest.mark.heavy
ROUNDING = 2e-5  # of losses, advantages and norms of gradients in float32, relative and absolute
WEIGHTS = 2e-6  # largest difference of a weight; the steps below move weights by about 1e-3
RATES = ["trainer.warmup.lr=0.1", "trainer.rl.lr=0.1"]  # of gradients that are clipped to norm 1


def overrides(name: str, cache: Path, run: Path, *more: str) -> list[str]:
    return [f"system={name}", f"data.cache={cache}", f"run_dir={run}", *SMALL, *OWN.get(name, []), *RATES, *more]


def agree(alone: Path, both: Path) -> None:
    """Check that two runs have the same losses, advantages, gradients, weights and evaluation but for rounding."""
    rows = [[row for row in numbers(run) if row["phase"] != "base"] for run in (alone, both)]
    assert [(r["phase"], r["step"]) for r in rows[0]] == [(r["phase"], r["step"]) for r in rows[1]]
    assert {row["phase"] for row in rows[0]} == {"sft", "rl"}
    for one, other in zip(*rows, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            assert close(one[key], other[key]), (one["phase"], one["step"], key)
    summaries = [json.loads((run / "summary.json").read_text()) for run in (alone, both)]
    for key in ("answered_by", "lessons"):
        assert summaries[0][key] == summaries[1][key], key
    for name, values in summaries[0]["policies"].items():
        for key in set(values) - {"seconds"}:
            assert close(values[key], summaries[1]["policies"][name][key]), (name, key)


def close(one: Any, other: Any) -> bool:
    """Whether values are equal, numbers anywhere inside but for rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(close(a, b) for a, b in zip(one, other, strict=True))
    return other == pytest.approx(one, rel=ROUNDING, abs=ROUNDING) if isinstance(one, float) else one == other


def weights_agree(alone: Path, both: Path) -> None:
    """Check the weights after SFT and after RL."""
    for file in ("sft/model.safetensors", "step-1/weights.safetensors"):
        one, other = (load_file(run / "checkpoints" / file) for run in (alone, both))
        assert one.keys() == other.keys()
        for name, weight in one.items():
            assert float((weight - other[name]).abs().max()) < WEIGHTS, (file, name)


def compare_with_one(name: str, tmp_path: Path, *more: str) -> None:
    """Train in this process, then in two, by gradient steps."""
    cache, alone, both = tmp_path / "cache", tmp_path / "alone", tmp_path / "both"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.optim, "AdamW", GradientSteps)
        train(load(overrides(name, cache, alone)))
    words = overrides(name, cache, both, *more)
    done = run_python(Path(__file__).with_name("gradient_steps.py"), *words, processes=2)
    assert done.returncode == 0, done.stderr[-4000:]
    assert numbers(alone)[-1]["train/grad_norm"] > 0.1, "no gradient but rounding: this would compare nothing"
    agree(alone, both)
    weights_agree(alone, both)


def test_two_processes_train_a_system_as_one_does(tmp_path: Path):
    compare_with_one("ehr_rag", tmp_path)


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_two_processes_under_zero_train_a_system_as_one_does(tmp_path: Path):
    compare_with_one("ghar", tmp_path, "deepspeed=zero2")
