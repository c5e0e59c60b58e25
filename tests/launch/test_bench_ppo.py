"""The measurement of a PPO step at its smallest; TRL's side where GHAR_TRL_PYTHON names a python with trl==1.12."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Qwen2ForCausalLM

from benchmarks import ppo
from benchmarks.ppo import SMALLEST, SMOLLM2, Spec, qwen2, sides, step
from ghar.errors import BadInput
from tests.smollm2 import WEIGHTS

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


def test_smollm2s_shape_is_its_own() -> None:
    """Its weights, and Qwen2's offsets of queries, keys and values."""
    shape = (SMOLLM2[name] for name in ("hidden", "layers", "heads", "vocab", "wide", "kv_heads"))
    with torch.device("meta"):
        model = Qwen2ForCausalLM(qwen2(*shape))
    offsets = sum(p.numel() for name, p in model.named_parameters() if name.endswith("bias"))
    assert model.num_parameters() - offsets == WEIGHTS


def test_settings_are_chosen_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Spec] = []
    monkeypatch.setattr(ppo, "sides", lambda folder, spec, *_: timed.append(spec) or {})
    assert list(step(tmp_path, 1, [], None, 60)) == ["short", "long"]
    assert list(step(tmp_path, 1, [], None, 60, ["smollm2"])) == ["smollm2"]
    assert timed[-1].tokens == 2 * 8 * (512 + 128 + 32) and timed[-1].turns == 8
    with pytest.raises(BadInput, match=r"--only has smollm, .*: choose among short, long, smollm2"):
        step(tmp_path, 1, [], None, 60, ["smollm"])


def test_eight_turn_episodes_at_their_smallest(tmp_path: Path) -> None:
    """The settings of SmolLM2's shape with a tiny model, in the benchmark's own process."""
    sizes: dict[str, Any] = {**SMALLEST, "heads": 2, "kv_heads": 1, "wide": 12, "prompts": 8, "prompt": 80, "turns": 8}
    spec = Spec(**{**SMOLLM2, **sizes, "record": 70, "repeats": 1}, finetune="lora", threads=1)
    assert sides(tmp_path, spec, None, rounds=1, timeout=1800)["ours"]["tokens per second"] > 0
