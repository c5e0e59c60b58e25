"""Checkpoints: whole or not at all, verified on reading, never loaded into another model.

<run>/checkpoints/
    step-N/  weights.safetensors   trainable weights
             optimizer.pt          optimiser state
             random.pt             states of the random generators
             state.json            whatever the training loop counts (step, best metric, normaliser, ...)
             model.json            identity of the model the weights belong to
             manifest.json         sha256 of the five files above
    latest, best                   one line each: the name of a step folder
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ghar.errors import BadInput

FILES = ("weights.safetensors", "optimizer.pt", "random.pt", "state.json", "model.json")
POINTERS = ("latest", "best")


@dataclass(frozen=True)
class Checkpoint:
    """What was saved: state, the loop's own JSON; optimizer, a state_dict; random, generator states by name."""

    weights: dict[str, Tensor]
    optimizer: dict[str, Any]
    random: dict[str, Any]
    state: dict[str, Any]
    step: int


def identity(model: Any, tokenizer: Any, base: str, trained: Mapping[str, Any]) -> dict[str, str]:
    """What must be equal for weights to fit: architecture and tokenizer (hashed), base model, how it is trained.

    model: a transformers model; trained: settings that shape the trainable weights (finetune, rank, critic, ...).
    """
    # Where it was loaded from and by which version does not change what the weights mean.
    config = {k: v for k, v in model.config.to_dict().items() if not k.startswith("_") and k != "transformers_version"}
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    return {
        "architecture": _digest(json.dumps(config, sort_keys=True, default=str).encode()),
        "tokenizer": _digest(json.dumps(vocabulary).encode()),
        "base": base,
        "trained": json.dumps(dict(trained), sort_keys=True),
    }


def random_state(**generators: np.random.Generator) -> dict[str, Any]:
    """States of torch's global generators and of the named numpy generators."""
    state: dict[str, Any] = {name: generator.bit_generator.state for name, generator in generators.items()}
    state["torch"] = torch.get_rng_state()
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random(state: Mapping[str, Any], **generators: np.random.Generator) -> None:
    """Undo `random_state` in place."""
    for name, generator in generators.items():
        generator.bit_generator.state = state[name]
    torch.set_rng_state(state["torch"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])


def save(folder: Path, checkpoint: Checkpoint, model: Mapping[str, str], *, best: bool = False) -> Path:
    """Write `folder`/step-N, point `latest` (and `best`) to it and remove all step folders neither points to.

    A kill at any moment leaves the former `latest` whole. model: from `identity`. Returns the step's folder.
    """
    folder.mkdir(parents=True, exist_ok=True)
    final = folder / f"step-{checkpoint.step}"
    scratch = folder / f".step-{checkpoint.step}.partial"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    _write_files(scratch, checkpoint, model)
    sums = {name: _file_digest(scratch / name) for name in FILES}
    (scratch / "manifest.json").write_text(json.dumps(sums, indent=1) + "\n")
    for name in (*FILES, "manifest.json"):
        _sync(scratch / name)
    _sync(scratch)
    if final.exists():  # the same step again: `find` takes the former folder back should we die between the renames
        former = _former(final)
        shutil.rmtree(former, ignore_errors=True)
        os.rename(final, former)
    os.rename(scratch, final)
    _sync(folder)
    for name in ("latest", "best") if best else ("latest",):
        _point(folder, name, final.name)
    _prune(folder)
    return final


def _write_files(scratch: Path, checkpoint: Checkpoint, model: Mapping[str, str]) -> None:
    from safetensors.torch import save_file

    # safetensors refuses tensors that share memory or have gaps
    weights = {name: value.detach().cpu().contiguous().clone() for name, value in checkpoint.weights.items()}
    save_file(weights, scratch / "weights.safetensors")
    torch.save(checkpoint.optimizer, scratch / "optimizer.pt")
    torch.save(checkpoint.random, scratch / "random.pt")
    (scratch / "state.json").write_text(json.dumps({"step": checkpoint.step, **checkpoint.state}, indent=1) + "\n")
    (scratch / "model.json").write_text(json.dumps(dict(model), indent=1) + "\n")


def find(folder: Path, which: str = "latest") -> Path | None:
    """The step folder `latest` or `best` points to; None when nothing was saved. BadInput when it is gone."""
    pointer = folder / which
    if not pointer.is_file():
        return None
    step = folder / pointer.read_text().strip()
    if not step.exists() and _former(step).is_dir():
        os.rename(_former(step), step)
    if not step.is_dir():
        raise BadInput(
            f"{pointer} names {step.name}, which does not exist; restore it or delete {pointer} to start over"
        )
    return step


def load(step: Path, model: Mapping[str, str]) -> Checkpoint:
    """Read a step folder after checking every file's hash and that it belongs to `model` (from `identity`).

    BadInput naming the damaged or missing file, or what differs between the two models.
    """
    from safetensors.torch import load_file

    _verify(step)
    _compare(step, model)
    state = json.loads((step / "state.json").read_text())
    return Checkpoint(
        weights=load_file(step / "weights.safetensors"),
        optimizer=torch.load(step / "optimizer.pt", map_location="cpu", weights_only=True),
        random=torch.load(step / "random.pt", map_location="cpu", weights_only=True),
        step=state.pop("step"),
        state=state,
    )


def _verify(step: Path) -> None:
    advice = "take another checkpoint or delete this one"
    try:
        sums = json.loads((step / "manifest.json").read_text())
    except (OSError, ValueError):
        raise BadInput(
            f"{step / 'manifest.json'} is missing or unreadable, so {step} is no checkpoint; {advice}"
        ) from None
    for name in FILES:
        if not (step / name).is_file():
            raise BadInput(f"{step / name} is missing; {advice}")
        if _file_digest(step / name) != sums.get(name):
            raise BadInput(f"{step / name} is damaged (its sha256 is not the manifest's); {advice}")


def _compare(step: Path, model: Mapping[str, str]) -> None:
    saved = json.loads((step / "model.json").read_text())
    for key in sorted({*saved, *model}):
        if saved.get(key) != model.get(key):
            raise BadInput(
                f"{step} is of another model: its {key} is {saved.get(key)}, this run's is {model.get(key)}; "
                "use the configuration it was trained with or another run folder"
            )


def _point(folder: Path, name: str, target: str) -> None:
    scratch = folder / f".{name}.partial"
    scratch.write_text(target + "\n")
    _sync(scratch)
    os.replace(scratch, folder / name)
    _sync(folder)


def _prune(folder: Path) -> None:
    kept = {(folder / name).read_text().strip() for name in POINTERS if (folder / name).is_file()}
    for path in folder.iterdir():
        if path.is_dir() and path.name not in kept and path.name.lstrip(".").startswith("step-"):
            shutil.rmtree(path)


def _former(step: Path) -> Path:
    return step.with_name(f".{step.name}.old")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
