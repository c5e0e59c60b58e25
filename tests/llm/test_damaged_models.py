"""A model's folder that was copied badly is refused in a sentence, and never played with weights drawn at random."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from ghar.errors import BadInput
from ghar.llm.models import load_pretrained
from tests.llm.families import saved

pytestmark = pytest.mark.slow


def half_of_the_weights(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def without_a_layer(folder: Path) -> None:
    weights = {k: v for k, v in load_file(folder / "model.safetensors").items() if ".layers.1." not in k}
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


def of_another_width(folder: Path) -> None:
    edit(folder / "config.json", lambda about: about | {"intermediate_size": about["intermediate_size"] * 2})


def without_a_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")


def with_a_smaller_vocabulary(folder: Path) -> None:
    weights, least = load_file(folder / "model.safetensors"), 8
    cut = {k: v[:least].clone() if "embed_tokens" in k or "lm_head" in k else v for k, v in weights.items()}
    save_file(cut, folder / "model.safetensors", {"format": "pt"})
    edit(folder / "config.json", lambda about: about | {"vocab_size": least})
    for name in ("config.json", "generation_config.json"):
        edit(folder / name, lambda about: {k: 3 if k.endswith("token_id") else v for k, v in about.items()})


def edit(file: Path, change: Callable[[dict], dict]) -> None:
    file.write_text(json.dumps(change(json.loads(file.read_text()))))


@pytest.mark.parametrize(("damage", "told"), [
    (half_of_the_weights, "trainer.warmup.teacher=.* cannot be loaded"),
    (without_a_layer, r"cannot be loaded \(it lacks the weights model.layers.1.input_layernorm.weight and 8 more\)"),
    (of_another_width, "cannot be loaded"),
    (without_a_tokenizer, "cannot be loaded"),
    (with_a_smaller_vocabulary, "a tokenizer of .* tokens and a model of 8: it holds files of two models"),
])  # fmt: skip
def test_a_damaged_folder_is_refused_in_a_sentence(damage: Callable[[Path], None], told: str, tmp_path: Path) -> None:
    folder = Path(saved("smollm2", tmp_path))
    load_pretrained(str(folder), "float32")
    damage(folder)
    with pytest.raises(BadInput, match=told):
        load_pretrained(str(folder), "float32", key="trainer.warmup.teacher")
