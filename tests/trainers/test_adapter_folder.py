"""A model after SFT with LoRA is kept as its adapter, and read as the model it was."""

from __future__ import annotations

import hashlib
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
from ghar.llm import adapter as adapter_folders
from ghar.llm.adapter import (
    BASE_FILE,
    WEIGHTS,
    Adapter,
    find_base,
    merge_and_unload,
    take_adapter,
    weights_digest,
    write_adapter_folder,
)
from ghar.llm.models import load_backbone, load_pretrained
from ghar.metrics.runfolder import RunFolder
from ghar.trainers import agent
from ghar.trainers import export as exporting
from ghar.trainers.agent import config_of
from ghar.trainers.export import export
from ghar.trainers.runs import models as saved_models
from ghar.trainers.runs.manifest import weights_sum
from ghar.trainers.runs.models import BASE, SFT, load_sft, model_size, save_model, save_trained, start_of
from ghar.trainers.runs.resume import as_yaml, finished, open_run
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


def untrained(run: Path, dtype: str = "float32") -> tuple[Path, Any]:
    """checkpoints/sft with a random adapter on the tiny model in checkpoints/base; the folder and the whole model."""
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(0)
    model, checkpoints = tiny_model().to(getattr(torch, dtype)), run / "checkpoints"
    save_model(model, tiny_tokenizer(), checkpoints / BASE, False)
    adapted: Any = get_peft_model(
        model, LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    )
    adapter, whole = take_adapter(adapted), merge_and_unload(adapted)
    save_trained(whole, adapter, tiny_tokenizer(), str(checkpoints / BASE), checkpoints / SFT, False)
    return checkpoints / SFT, whole


def load_adapter(folder: Path) -> Adapter:
    """The adapter in a folder."""
    from peft import PeftConfig
    from safetensors.torch import load_file

    return Adapter(PeftConfig.from_pretrained(str(folder)), load_file(folder / WEIGHTS))


@pytest.mark.slow  # it loads TRL
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_read_to_the_last_bit(tmp_path: Path, dtype: str):
    config, result = kept(tmp_path / "run", dtype)
    model, _ = load_sft(config, tmp_path / "run" / "checkpoints")
    assert equal(model, result.model) and not equal(model, tiny_model().to(getattr(torch, dtype)))
    sft = tmp_path / "run" / "checkpoints" / SFT
    assert sorted(path.name for path in sft.glob("*.safetensors")) == ["adapter_model.safetensors"]
    assert model_size(sft) == model_size(tmp_path / "run" / "checkpoints" / BASE)


def test_a_run_folder_can_be_moved(tmp_path: Path):
    _, whole = untrained(tmp_path / "run")
    config = load([f"run_dir={tmp_path / 'run'}", "model.dtype=float32"])
    shutil.move(tmp_path / "run", tmp_path / "elsewhere")
    assert equal(load_sft(config, tmp_path / "elsewhere" / "checkpoints")[0], whole)


def test_another_base_is_refused(tmp_path: Path):
    sft, whole = untrained(tmp_path / "run")
    config, checkpoints = load([f"run_dir={tmp_path / 'run'}", "model.dtype=float32"]), sft.parent
    own, sum_ = tmp_path / "own", weights_sum(checkpoints / SFT)
    shutil.move(checkpoints / BASE, own)
    with pytest.raises(BadInput, match=r"is an adapter of \.\./base, whose weights are gone or changed"):
        load_sft(config, checkpoints)
    save_model(tiny_model(seed=1), tiny_tokenizer(), checkpoints / BASE, False)
    with pytest.raises(BadInput, match="gone or changed"):
        load_pretrained(str(checkpoints / SFT), "float32")
    named = load([f"run_dir={tmp_path}", "model=pretrained", f"model.path={own}", "model.dtype=float32"])
    assert equal(load_sft(named, checkpoints)[0], whole)  # found where the configuration says
    save_trained(whole, load_adapter(sft), tiny_tokenizer(), str(checkpoints / BASE), tmp_path / "other", False)
    assert weights_sum(tmp_path / "other") != sum_  # the same adapter on another base is another model


def test_an_adapter_may_be_the_base_of_another(tmp_path: Path):
    sft, whole = untrained(tmp_path / "run")
    save_trained(whole, load_adapter(sft), tiny_tokenizer(), str(sft), tmp_path / "second", False)
    assert json.loads((tmp_path / "second" / BASE_FILE).read_text())["sha256"] == weights_digest(str(sft))
    assert weights_digest(str(sft)) == weights_sum(sft)
    twice = load_pretrained(str(tmp_path / "second"), "float32")[0]
    assert not equal(twice, whole) and logits(twice).isfinite().all()


@pytest.mark.slow
def test_an_export_holds_the_whole_base(tmp_path: Path):
    untrained(tmp_path / "run")
    config, actor = finished_run(tmp_path / "run", "model.critic=head")
    expected, target = logits(actor.model), export(config)
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(target / "merged")), expected, atol=1e-5)
    assert not (target / "base" / BASE_FILE).exists() and (target / "base" / "model.safetensors").is_file()


def test_a_base_without_weights_is_refused(tmp_path: Path):
    sft, _ = untrained(tmp_path)
    empty = tmp_path / "empty"
    empty.mkdir()
    shutil.copy(sft / "config.json", empty)
    with pytest.raises(BadInput, match="empty has no weight files beside its"):
        write_adapter_folder(load_adapter(sft), str(empty), tmp_path, tmp_path / "home", "float32")
    about = json.loads((sft / BASE_FILE).read_text())
    (sft / BASE_FILE).write_text(json.dumps({"path": str(empty), "sha256": None}))
    with pytest.raises(BadInput, match="has no sum of its weights"):
        find_base(sft, str(empty))
    (sft / BASE_FILE).write_text(json.dumps({**about, "path": str(empty)}))
    with pytest.raises(BadInput, match="gone or changed"):
        find_base(sft, str(empty))


def test_a_lost_base_is_told_in_one_sentence(tmp_path: Path):
    sft, _ = untrained(tmp_path)
    shutil.rmtree(sft.parent / BASE)
    with pytest.raises(BadInput) as told:
        load_pretrained(str(sft), "float32")
    assert str(told.value).startswith(f"{sft} is an adapter of ../base") and "cannot be loaded" not in str(told.value)


def test_a_moved_base_is_found_as_model_path(tmp_path: Path):
    sft, whole = untrained(tmp_path)
    size, moved = model_size(sft), tmp_path / "moved"
    shutil.move(sft.parent / BASE, moved)
    named = ["model=pretrained", f"model.path={moved}", "model.dtype=float32", f"eval.checkpoint={sft}"]
    assert equal(load_backbone(load([f"run_dir={tmp_path}", *named]), list)[0], whole)
    assert model_size(sft) is None and size is not None and model_size(sft, str(moved)) == size


def test_the_size_of_a_base_with_a_name_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sft, _ = untrained(tmp_path)
    size, about = model_size(sft), json.loads((sft / BASE_FILE).read_text())
    shutil.move(sft.parent / BASE, tmp_path / "snapshot")
    (sft / BASE_FILE).write_text(json.dumps({**about, "path": "org/name"}))
    found = {"org/name": tmp_path / "snapshot"}
    for module in (adapter_folders, saved_models):
        monkeypatch.setattr(module, "folder_of", lambda path: found.get(path, Path(path)))
    assert size is not None and model_size(sft) == size


def test_it_is_put_together_in_the_dtype_of_its_training(tmp_path: Path):
    sft, whole = untrained(tmp_path, "bfloat16")
    found = load_pretrained(str(sft), "float32")[0]
    assert found.dtype == torch.float32 == found.config.dtype and equal(found, whole.float())
    about = json.loads((sft / BASE_FILE).read_text())
    assert about.pop("dtype") == "bfloat16"
    (sft / BASE_FILE).write_text(json.dumps(about))
    earlier = load_pretrained(str(sft), "float32")[0]  # a folder of an earlier version: as it was read there
    assert not equal(earlier, whole) and torch.allclose(logits(earlier), logits(whole), atol=0.05)


def test_a_file_is_summed_again_when_it_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sft, _ = untrained(tmp_path)
    file, summed = sft.parent / BASE / "model.safetensors", []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda opened, kind: summed.append(opened.name) or digest(opened, kind))
    adapter_folders._sum_of.cache_clear()
    first = [weights_digest(str(sft.parent / BASE)) for _ in range(3)]
    assert len(set(first)) == 1 and summed == [str(file)]
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    assert weights_digest(str(sft.parent / BASE)) != first[0] and len(summed) == 2


def test_a_run_goes_on_where_its_base_has_moved(tmp_path: Path):
    sft, _ = untrained(tmp_path)
    shutil.copytree(sft.parent / BASE, tmp_path / "moved")
    save_model(tiny_model(seed=1), tiny_tokenizer(), tmp_path / "other", False)

    def named(place: Path) -> Config:
        """A teacher may be the model itself (scale=laptop)."""
        words = ["model=pretrained", f"model.path={place}", f"trainer.warmup.teacher={place}"]
        return load([f"run_dir={tmp_path}", "model.lora_rank=4", *words])

    RunFolder.open(tmp_path).write_config(as_yaml(named(sft.parent / BASE)))
    with pytest.raises(BadInput, match=r"of another configuration \(model\.path is"):
        open_run(named(tmp_path / "other"))
    assert not finished(named(tmp_path / "moved"))
    assert open_run(named(tmp_path / "moved")) == (RunFolder(tmp_path), True)
    shutil.rmtree(sft)
    with pytest.raises(BadInput, match="of another configuration"):  # nothing says that it is the same
        open_run(named(tmp_path / "other"))


def test_an_agent_and_an_export_find_a_moved_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sft, _ = untrained(tmp_path)
    named = ["model=pretrained", f"model.path={sft.parent / BASE}", "model.dtype=float32", "model.critic=head"]
    _, actor = finished_run(tmp_path, *named)
    expected, moved = logits(actor.model), tmp_path / "moved"
    RunFolder.open(tmp_path).write_config(as_yaml(load([f"run_dir={tmp_path}", "model.lora_rank=4", *named])))
    shutil.move(sft.parent / BASE, moved)
    with pytest.raises(BadInput, match="weights are gone or changed"):
        export(config_of(tmp_path))
    asked: list[Config] = []
    with monkeypatch.context() as patch, pytest.raises(StopIteration):
        patch.setattr(agent, "Records", lambda config: (asked.append(config), next(iter(())))[0])
        agent.load(tmp_path, base=moved)  # as far as its configuration
    target = export(asked[0])
    assert torch.allclose(logits(AutoModelForCausalLM.from_pretrained(target / "merged")), expected, atol=1e-5)


def test_an_export_writes_the_base_before_it_loads_the_actor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    untrained(tmp_path)
    config, _ = finished_run(tmp_path, "model.critic=head")
    there: list[bool] = []

    def loaded(config: Config, step: Path) -> Any:
        there.append((tmp_path / ".export.partial" / "base" / "model.safetensors").is_file())
        return load_trained(config, step)

    load_trained = exporting.load_trained
    monkeypatch.setattr(exporting, "load_trained", loaded)
    export(config)
    assert there == [True]
