"""Two processes under torchrun train a system as one does, with and without DeepSpeed."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch.entry import load
from tests.systems.test_contract import OWN, ROOT, SMALL, numbers

LIMIT = 500  # seconds; less than one minute on an idle machine, but this one may be busy
pytestmark = pytest.mark.timeout(2 * LIMIT)
LARGEST = "train/ratio/max"  # of one token, after steps of Adam whose sign rounding decides where a gradient is tiny


def overrides(name: str, cache: Path, run: Path) -> list[str]:
    return [f"system={name}", f"data.cache={cache}", f"run_dir={run}", *SMALL, *OWN.get(name, [])]


def two_processes(*arguments: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*command, str(ROOT / "launch" / "train.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]


def agree(alone: Path, both: Path, within: float) -> None:
    """Whether all rows of SFT and RL, and all numbers of the evaluation, are the same but for rounding."""
    rows = [[row for row in numbers(run) if row["phase"] != "base"] for run in (alone, both)]
    assert [(r["phase"], r["step"]) for r in rows[0]] == [(r["phase"], r["step"]) for r in rows[1]]
    assert {row["phase"] for row in rows[0]} == {"sft", "rl"}
    for one, other in zip(*rows, strict=True):
        assert one.keys() == other.keys()
        for key in one:
            assert close(one[key], other[key], 1e-2 if key == LARGEST else within), (one["phase"], one["step"], key)
    told = [json.loads((run / "summary.json").read_text()) for run in (alone, both)]
    assert told[0]["answered_by"] == told[1]["answered_by"] and told[0]["lessons"] == told[1]["lessons"]
    for name, values in told[0]["policies"].items():
        for key in set(values) - {"seconds"}:
            assert close(values[key], told[1]["policies"][name][key], within), (name, key)


def close(one: Any, other: Any, within: float) -> bool:
    """Equal, numbers anywhere inside but for rounding."""
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(one[k], other[k], within) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(close(a, b, within) for a, b in zip(one, other, strict=True))
    return other == pytest.approx(one, rel=within, abs=within) if isinstance(one, float) else one == other


def compare_with_one(name: str, tmp_path: Path, within: float, *more: str) -> None:
    from trainers.recipe import train

    alone, both, cache = tmp_path / "alone", tmp_path / "both", tmp_path / "cache"
    train(load(overrides(name, cache, alone)))
    two_processes(*overrides(name, cache, both), *more)
    agree(alone, both, within)


def test_two_processes_train_a_system_as_one_does(tmp_path: Path):
    compare_with_one("ehr_rag", tmp_path, 1e-4)


@pytest.mark.skipif(importlib.util.find_spec("deepspeed") is None, reason="deepspeed is not installed")
def test_two_processes_under_zero_train_a_system_as_one_does(tmp_path: Path):
    compare_with_one("exprag", tmp_path, 1e-4, "deepspeed=zero2")
