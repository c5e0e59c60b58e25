"""Exports load in plain PEFT and transformers and say what the actor says."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from ghar.config import Config
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.evaluation.weights import identity, make_actor
from ghar.trainers.export import export
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.models import SFT, load_sft, save_model
from tests.trainers.tiny import VOCAB, perturb, tiny_model, tiny_tokenizer

SUMMARY: dict[str, Any] = {
    "generated": True,
    "seed": 3,
    "experiment": "los on demo",
    "task": {"name": "los", "question": "How long will this stay be?", "labels": ["0", "1-3", "over 14"]},
    "ceilings": {"parametric": 0.585, "retrieval": 0.933},
    "data": {"patients": 150, "train samples": 99},
    "policies": {
        "scripted": {"accuracy": [0.7, 0.6, 0.8], "reward": [12.0, 11.0, 13.0]},
        "ghar_rl": {"accuracy": [0.8, 0.75, 0.85], "reward": [13.5, 13.0, None]},
    },
}


def finished_run(folder: Path, *overrides: str, credentialed: bool = False) -> tuple[Config, ActorCritic]:
    """A run folder as training leaves it, as far as an export looks, and its actor; a policy after SFT that is there
    stays."""
    config = load([f"run_dir={folder}", "model.lora_rank=4", *overrides])
    checkpoints = folder / "checkpoints"
    if not (checkpoints / SFT).is_dir():
        save_model(tiny_model(), tiny_tokenizer(), checkpoints / SFT, credentialed)
    actor = perturb(make_actor(config, load_sft(config, checkpoints)[0], ("top", "low")))
    found = checkpoint.Checkpoint(
        actor.trainable_state(), {}, checkpoint.random_state(), {}, 7, score=1.0, credentialed=credentialed
    )
    names = identity(config, actor, AutoTokenizer.from_pretrained(checkpoints / SFT), checkpoints)
    checkpoint.save(checkpoints, found, names, checkpoint.KeepPolicy(1, 1))
    RunFolder.open(folder).write_summary(SUMMARY)
    return config, actor


@torch.no_grad()
def logits(model: Any) -> torch.Tensor:
    ids = torch.arange(2, VOCAB - 2).reshape(4, -1)
    return model.eval()(input_ids=ids).logits


@pytest.mark.slow
@pytest.mark.parametrize("critic", ["head", "own"])
def test_lora(tmp_path: Path, critic: str):
    config, actor = finished_run(tmp_path / "run", f"model.critic={critic}")
    expected, base = logits(actor.model), logits(tiny_model())
    target = export(config)
    assert sorted(path.name for path in target.iterdir()) == [
        "README.md", "adapter", "base", "merged", "provenance.json",
    ]  # fmt: skip
    merged = AutoModelForCausalLM.from_pretrained(target / "merged")
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(target / "base"), str(target / "adapter"))
    assert (expected - base).abs().max() > 0.01  # else all three would agree anyway
    assert torch.allclose(logits(adapted), expected, atol=1e-5)
    assert torch.allclose(logits(merged), expected, atol=1e-5)
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(target / "base")), base, atol=1e-5)
    words = [AutoTokenizer.from_pretrained(folder).get_vocab() for folder in (target / "merged", target / "base")]
    assert words[0] == words[1] and words[0].items() >= tiny_tokenizer().get_vocab().items()


def test_adapter_is_what_vllm_reads(tmp_path: Path):
    """vLLM takes plain LoRA only (no bias, no saved modules, no patterns of ranks) on layers it knows by name."""
    from safetensors import safe_open

    config, _ = finished_run(tmp_path / "run", "model.critic=own")
    adapter = export(config) / "adapter"
    settings = json.loads((adapter / "adapter_config.json").read_text())
    assert (settings["peft_type"], settings["r"], settings["bias"]) == ("LORA", 4, "none")
    refused = ("modules_to_save", "use_dora", "lora_bias", "rank_pattern", "alpha_pattern")
    assert not any(settings.get(name) for name in refused)
    layers = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}
    assert set(settings["target_modules"]) == layers
    name = settings["base_model_name_or_path"]
    assert name.startswith("ghar-sft-") and "/" not in name  # of its weights' sums: neither a folder nor a hub's name
    done = subprocess.run(["sha256sum", "-c", "base.sha256"], cwd=adapter, capture_output=True, text=True, check=True)
    assert done.stdout == "../base/model.safetensors: OK\n"
    with safe_open(adapter / "adapter_model.safetensors", "pt") as file:
        names = list(file.keys())
    assert len(names) == 2 * 2 * len(layers)  # A and B in both layers of the model; no critic
    assert all(n.startswith("base_model.model.model.layers.") and n.endswith(("_A.weight", "_B.weight")) for n in names)
    own, merged = (adapter / "README.md").read_text(), (adapter.parent / "merged" / "README.md").read_text()
    assert "--max-lora-rank 8" in own and f"\nbase_model: {name}\n" in own and own.startswith("---\nlibrary_name: peft")
    assert merged.startswith("---\nlibrary_name: transformers") and name not in merged


def test_an_export_loads_where_it_was_moved_to(tmp_path: Path):
    config, actor = finished_run(tmp_path / "run")
    expected = logits(actor.model)
    moved = tmp_path / "elsewhere"
    shutil.move(export(config), moved)
    adapted = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(moved / "base"), str(moved / "adapter"))
    assert torch.allclose(logits(adapted), expected, atol=1e-5)


def test_full_finetuning_and_a_second_export(tmp_path: Path):
    config, actor = finished_run(tmp_path / "run", "model.lora_rank=null")
    target = tmp_path / "run" / "export"
    for _ in range(2):
        assert export(config) == target
        assert sorted(path.name for path in target.iterdir()) == ["README.md", "merged", "provenance.json"]
        assert torch.allclose(
            logits(AutoModelForCausalLM.from_pretrained(target / "merged")), logits(actor.model), atol=1e-5
        )
    assert "--enable-lora" not in (target / "README.md").read_text()


@pytest.mark.slow
def test_the_card_says_what_it_is(tmp_path: Path):
    config, _ = finished_run(tmp_path / "run")
    text = (export(config) / "README.md").read_text()
    for part in (
        "GENERATED patients",
        "How long will this stay be?",
        "0, 1-3, over 14",
        "| train samples | 99 |",
        "| policy | accuracy | reward |\n|---|---|---|\n",
        "---|\n| `scripted` | 0.700 [0.600, 0.800] | 12.000 [11.000, 13.000] |\n",
        "| `ghar_rl` | 0.800 [0.750, 0.850] | - |\n",
        "parametric 0.585 (without retrieval, from codes alone, knowing",
        "retrieval 0.933 (with retrieval)",
        f"after update 7 of {config.trainer.rl.updates}, the best by validation reward",
        "## Intended use",
        "## Limits",
    ):
        assert part in text, part
    assert text.startswith("---\nlibrary_name: transformers\n") and "data use agreement" not in text
    config, _ = finished_run(tmp_path / "real", credentialed=True)
    RunFolder.open(tmp_path / "real").write_summary({**SUMMARY, "generated": False, "ceilings": None})
    text = (export(config) / "README.md").read_text()
    assert "data use agreement" in text and "GENERATED" not in text and "without retrieval" not in text


def test_what_cannot_be_exported_is_named(tmp_path: Path):
    with pytest.raises(BadInput, match="holds no finished run"):
        export(load([f"run_dir={tmp_path / 'none'}"]))
    config, _ = finished_run(tmp_path / "run")
    weights = tmp_path / "run" / "checkpoints" / "step-7" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(BadInput, match=r"weights\.safetensors is damaged"):
        export(config)
    assert not (tmp_path / "run" / "export").exists() and not (tmp_path / "run" / ".export.partial").exists()


def mark(folder: Path) -> bool:
    return json.loads((folder / "provenance.json").read_text())["credentialed"]


@pytest.mark.slow
@pytest.mark.parametrize("said", [False, None])
def test_an_export_has_the_mark_of_its_weights_whatever_the_summary_says(tmp_path: Path, said: bool | None):
    """An evaluation on generated patients writes credentialed=false into the summary of credentialed weights."""
    config, _ = finished_run(tmp_path / "run", credentialed=True)
    RunFolder.open(tmp_path / "run").write_summary({**SUMMARY, "credentialed": said})
    target = export(config)
    assert all(mark(folder) for folder in (target, target / "merged", target / "adapter", target / "base"))


@pytest.mark.parametrize("name", ["sft", "step-7"])
def test_one_strict_mark_among_the_weights_is_enough(tmp_path: Path, name: str):
    """RL on credentialed patients from a generated warm-up, and the other way round; a removed mark is strict too."""
    from ghar.provenance import weights_of_credentialed, write_mark
    from ghar.trainers.runs import manifest

    config, _ = finished_run(tmp_path / "run")
    checkpoints = tmp_path / "run" / "checkpoints"
    assert not weights_of_credentialed(checkpoints)
    write_mark(checkpoints / name, credentialed=True)
    manifest.seal(checkpoints / name)
    assert weights_of_credentialed(checkpoints) and mark(export(config))
