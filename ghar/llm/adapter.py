"""LoRA adapters in folders of their own: without the model they belong on, which is named by its place and its sum.

adapter_config.json, adapter_model.safetensors   as PEFT writes them
base.json                                        {"path": of the base, "sha256": of its weights, "dtype": it was
                                                 trained in, which the two are put together in}
config.json, tokenizer, chat template            the base's, so that the folder stands for the model with the adapter

Such a folder is read wherever a model is: its base is loaded, the sum is checked, the adapter is folded in.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ghar.errors import BadInput

if TYPE_CHECKING:
    from peft import PeftConfig

BASE_FILE = "base.json"
CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


@dataclass(frozen=True)
class Adapter:
    """A trained adapter: PEFT's settings, and its weights under PEFT's names, in CPU memory."""

    settings: PeftConfig
    weights: dict[str, Tensor]


def take_adapter(model: Any) -> Adapter:
    """Copy the adapter of a PEFT model."""
    from peft import get_peft_model_state_dict

    state = get_peft_model_state_dict(model, save_embedding_layers=False)
    return Adapter(model.peft_config["default"], {name: value.detach().cpu().clone() for name, value in state.items()})


def write_adapter_folder(adapter: Adapter, base: str, folder: Path, home: Path, dtype: str) -> None:
    """Write the adapter and the identity of its base into `folder`, which will be renamed to `home`.

    base: folder or hub name. One beside `home` is named relative to it, so that a run folder can be moved. dtype: of
    the base in training. BadInput where the base's weights cannot be found, by which it would be known again.
    """
    from safetensors.torch import save_file

    place = Path(base).absolute()
    digest = weights_digest(str(place) if place.is_dir() else base)
    if digest is None:
        raise BadInput(
            f"{base} has no weight files beside its config.json, so that its adapter could not be known from those of "
            "other models: put them there and start the run again, which goes on from its last checkpoint."
        )
    if place.is_dir():
        near = place.parent == home.absolute().parent
        base = os.path.relpath(place, home.absolute()) if near else str(place)
    adapter.settings.base_model_name_or_path = base
    adapter.settings.inference_mode = True
    adapter.settings.save_pretrained(str(folder))
    save_file({name: value.contiguous() for name, value in adapter.weights.items()}, folder / WEIGHTS)
    about = {"path": base, "sha256": digest, "dtype": dtype}
    (folder / BASE_FILE).write_text(json.dumps(about, indent=1) + "\n")


def base_of(path: str | Path) -> dict[str, str] | None:
    """The base that an adapter's folder names; None for a model of another kind."""
    file = Path(path) / BASE_FILE
    return json.loads(file.read_text()) if file.is_file() else None


def find_base(path: str | Path, other: str | None = None) -> str:
    """Find the base of the adapter in the folder `path`: `other` where its weights are the right ones, else where the
    folder says. BadInput where it is gone, or its weights are others."""
    about = base_of(path)
    assert about is not None  # the caller asks
    named, wanted = about["path"], about["sha256"]
    if wanted is None:  # of a version that wrote what it could not know again
        raise BadInput(f"{path} is an adapter of {named}, but has no sum of its weights: train the run again.")
    beside = Path(os.path.normpath(Path(path) / named))
    for place in (other, str(beside) if beside.is_dir() else named):
        if place is not None and weights_digest(place) == wanted:
            return place
    raise BadInput(
        f"{path} is an adapter of {named}, whose weights are gone or changed: put them back, or name their folder as "
        "model.path (base= of ghar.load)."
    )


def weights_digest(path: str) -> str | None:
    """Return the sha256 over names and sums of a model's weights; None where they cannot be found.

    path: folder or hub name. An adapter's folder has the sum of its adapter and of its base.
    """
    folder = folder_of(path)
    sums = {file.name: file_digest(file) for file in _weight_files(folder)} if folder is not None else {}
    return combined(sums, base_of(path)) if sums else None


def combined(sums: dict[str, str], base: dict[str, str] | None) -> str:
    """Return one sum for a model's weights. sums: sha256 by file name; base: that of an adapter."""
    lines = [f"{name} {sums[name]}" for name in sorted(sums)]
    if base is not None:
        lines.append(f"base {base['sha256']}")
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def folder_of(path: str) -> Path | None:
    """Return the folder of a model; of a hub name, the one in the local cache."""
    if Path(path).is_dir():
        return Path(path)
    from transformers.utils.hub import cached_file

    try:
        config_path = cached_file(path, "config.json", local_files_only=True)
    except (OSError, ValueError):
        return None
    return None if config_path is None else Path(config_path).parent


def _weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))


def file_digest(file: Path) -> str:
    """Return the sha256 of a file; `_sum_of` keeps it while the file is the same."""
    stat = file.stat()
    return _sum_of(file, stat.st_size, stat.st_mtime_ns, stat.st_ino)


@lru_cache
def _sum_of(file: Path, size: int, changed: int, inode: int) -> str:
    """sha256 of a file, computed once while it is the same: a process reads a base again and again."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def with_adapter(model: Any, folder: Path) -> Any:
    """Fold the adapter in `folder` into `model`, its base, in place; returns it as a plain transformers model."""
    from peft import PeftModel

    return merge_and_unload(PeftModel.from_pretrained(model, str(folder)))


def merge_and_unload(model: Any) -> Any:
    """Fold a PEFT model's adapter into its base for good; returns the base as a plain transformers model."""
    for layer in _layers(model):
        _merge(layer, "default")
    return model.unload()


def fold(model: Any, adapter: str) -> list[tuple[Any, Tensor]]:
    """Merge an adapter into the weights of a PEFT model. Returns the layers with their former weights."""
    return [(layer, _merge(layer, adapter)) for layer in _layers(model)]


def _layers(model: Any) -> list[Any]:
    return [module for module in model.modules() if hasattr(module, "merge") and hasattr(module, "base_layer")]


@torch.no_grad()
def _merge(layer: Any, adapter: str) -> Tensor:
    """Merge a layer's adapter: summed in float32 and rounded once, where PEFT in 16 bits rounds the adapter's part
    first. Returns the former weight."""
    before = layer.base_layer.weight.detach().clone()
    layer.merge(adapter_names=[adapter])
    if before.dtype != torch.float32 and adapter in layer.lora_A:
        a, b = layer.lora_A[adapter].weight.float(), layer.lora_B[adapter].weight.float()
        layer.base_layer.weight.copy_(before.float().addmm_(b, a, alpha=layer.scaling[adapter]))
    return before
