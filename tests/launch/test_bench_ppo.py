"""The measurement of a PPO step at its smallest; TRL's side where GHAR_TRL_PYTHON names a python with trl==1.12."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.ppo import Spec, sides

pytestmark = pytest.mark.slow

TINY = Spec(32, 2, 2, 64, "lora", threads=1, prompts=4, prompt=8, reply=4, epochs=1, minibatches=2, repeats=1)


def test_our_side_alone_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = sides(tmp_path, TINY, None, rounds=1, timeout=1800)
    assert "--trl" in capsys.readouterr().out and "trl" not in result
    [only] = result["ours"]["every round"]
    assert len(only["every step"]) == TINY.repeats and 0 < result["ours"]["MB above imports"] < 1000
    assert result["ours"]["tokens per second"] == pytest.approx(TINY.tokens / result["ours"]["seconds"])


def test_trl_does_the_same_step(tmp_path: Path) -> None:
    python = os.environ.get("GHAR_TRL_PYTHON")
    if python is None:
        pytest.skip("GHAR_TRL_PYTHON names no python with trl==1.12")
    result = sides(tmp_path, TINY, Path(python), rounds=2, timeout=1800)
    assert result["trl"]["versions"]["transformers"] == result["ours"]["versions"]["transformers"]
    assert [len(one["every step"]) for one in result["trl"]["every round"]] == [TINY.repeats] * 2
    name = "times TRL's tokens per second"
    assert 0 < result[f"{name}, least"] <= result[name] <= result[f"{name}, most"]
