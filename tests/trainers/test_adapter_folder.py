"""A model after SFT with LoRA is kept as its adapter, and read as the model it was."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM

from ghar.config import Config
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.adapter import BASE_FILE, weights_digest
from ghar.trainers.export import export
from ghar.trainers.runs.manifest import weights_sum
from ghar.trainers.runs.models import BASE, SFT, load_saved, load_sft, model_size, save_model, save_trained, start_of
from ghar.trainers.sft.arguments import SFTSettings
from ghar.trainers.sft.pairs import TokenExample
from ghar.trainers.sft.run import SFTResult, run_sft
from tests.trainers.test_export import finished_run, logits
from tests.trainers.tiny import tiny_model, tiny_tokenizer

PAIRS = [TokenExample([3 + i, 5, 7], [4, 6 + i]) for i in range(4)]


def trained(dtype: str = "float32") -> SFTResult:
    """A tiny model after two steps of SFT with LoRA."""
    settings = SFTSettings(2, 4, lr=0.1, micro_batch=2, finetune="lora", rank=4, alpha=8, dtype=dtype)
    return run_sft(tiny_model().to(getattr(torch, dtype)), tiny_tokenizer(), PAIRS, settings)


def kept(run: Path, dtype: str = "float32") -> tuple[Config, SFTResult]:
    """A run folder with its base and its model after SFT."""
    config = load([f"run_dir={run}", "model.lora_rank=4", f"model.dtype={dtype}"])
    checkpoints, result = run / "checkpoints", trained(dtype)
    save_model(tiny_model().to(getattr(torch, dtype)), tiny_tokenizer(), checkpoints / BASE, False)
    save_trained(
        result.model, result.adapter, tiny_tokenizer(), start_of(config, checkpoints), checkpoints / SFT, False
    )
    return config, result


def equal(one: Any, other: Any) -> bool:
    states = [dict(model.named_parameters()) for model in (one, other)]
    return states[0].keys() == states[1].keys() and all(
        torch.equal(states[0][name], states[1][name]) for name in states[0]
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_read_to_the_last_bit(tmp_path: Path, dtype: str):
    config, result = kept(tmp_path / "run", dtype)
    model, _ = load_sft(config, tmp_path / "run" / "checkpoints")
    assert equal(model, result.model) and not equal(model, tiny_model().to(getattr(torch, dtype)))
    sft = tmp_path / "run" / "checkpoints" / SFT
    assert sorted(path.name for path in sft.glob("*.safetensors")) == ["adapter_model.safetensors"]
    assert model_size(sft) == model_size(tmp_path / "run" / "checkpoints" / BASE)


def test_a_run_folder_can_be_moved(tmp_path: Path):
    config, result = kept(tmp_path / "run")
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    assert equal(load_sft(config, tmp_path / "elsewhere" / "checkpoints")[0], result.model)


def test_another_base_is_refused(tmp_path: Path):
    config, result = kept(tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    own, sum_ = tmp_path / "own", weights_sum(checkpoints / SFT)
    shutil.move(checkpoints / BASE, own)
    with pytest.raises(BadInput, match=r"is an adapter of \.\./base, whose weights are gone or changed"):
        load_sft(config, checkpoints)
    save_model(tiny_model(seed=1), tiny_tokenizer(), checkpoints / BASE, False)
    with pytest.raises(BadInput, match="gone or changed"):
        load_saved(checkpoints / SFT, "float32")
    named = load([f"run_dir={tmp_path}", "model=pretrained", f"model.path={own}", "model.dtype=float32"])
    assert equal(load_sft(named, checkpoints)[0], result.model)  # found where the configuration says
    save_trained(result.model, result.adapter, tiny_tokenizer(), str(checkpoints / BASE), tmp_path / "other", False)
    assert weights_sum(tmp_path / "other") != sum_  # the same adapter on another base is another model


def test_an_adapter_may_be_the_base_of_another(tmp_path: Path):
    _, result = kept(tmp_path / "run")
    sft = tmp_path / "run" / "checkpoints" / SFT
    save_trained(result.model, result.adapter, tiny_tokenizer(), str(sft), tmp_path / "second", False)
    assert json.loads((tmp_path / "second" / BASE_FILE).read_text())["sha256"] == weights_digest(str(sft))
    assert weights_digest(str(sft)) == weights_sum(sft)
    twice = load_saved(tmp_path / "second", "float32")[0]
    assert not equal(twice, result.model) and logits(twice).isfinite().all()


def test_an_export_holds_the_whole_base(tmp_path: Path):
    kept(tmp_path / "run")
    config, actor = finished_run(tmp_path / "run", "model.critic=head")
    expected, target = logits(actor.model), export(config)
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(target / "merged")), expected, atol=1e-5)
    assert not (target / "base" / BASE_FILE).exists() and (target / "base" / "model.safetensors").is_file()
