"""Where models come from and go to: the start of a run, the warmed-up policy on disk, the actor around it."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch

from ghar.config import Config
from ghar.disk import is_old
from ghar.errors import BadInput
from ghar.llm.adapter import Adapter, base_of, find_base, folder_of, write_adapter_folder
from ghar.llm.models import load_with_base, model_path
from ghar.provenance import write_mark
from ghar.trainers.runs import manifest

QUOTA = Path("/sys/fs/cgroup/cpu.max")  # "200000 100000" is two cores
BASE = "base"  # in checkpoints/: what an untrained or practised demo model was before the warm-up
SFT = "sft"  # checkpoints/sft: the policy after the warm-up, the base and the reference of all that follows


def use_cores(threads: int | None) -> None:
    """Set torch's threads, as far as the processes that torchrun or Ray Train started here leave cores for them.

    threads: None takes the cores that are idle now. Threads that wait for each other's cores made SFT in two processes
    several times slower. Numbers too small to be normal count as zero: a confident model's softmax is full of them, and
    they halve the speed of a CPU.
    """
    processes = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    cores = usable_cores()
    wanted = idle_cores(cores) if threads is None else threads
    torch.set_num_threads(max(1, min(wanted, cores // processes)))
    torch.set_flush_denormal(True)


def usable_cores() -> int:
    """Cores that this process may use: of the machine, of its affinity (Slurm, taskset), of its container's quota."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = QUOTA.read_text().split()
        allowed = min(allowed, math.ceil(int(quota) / int(period)))  # "max" is no number: there is no quota
    return max(1, allowed)


def idle_cores(cores: int) -> int:
    """Cores without work of others, by the load of the last minute; at least one."""
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return max(1, cores - round(load))


def save_model(model: Any, tokenizer: Any, target: Path, credentialed: bool = True) -> None:
    """Write a model as a plain transformers folder with a manifest of sha256 sums, whole or not at all.

    credentialed: whether it has learned from credentialed patients, which whoever loads it inherits.

    A sound folder that is there by then stays: of processes that write the same model at once, the first one's counts,
    since others may be reading it already.
    """

    def write(partial: Path) -> None:
        model.save_pretrained(partial)
        tokenizer.save_pretrained(partial)

    _save(target, write, credentialed)


def save_trained(
    model: Any, adapter: Adapter | None, tokenizer: Any, base: str, target: Path, credentialed: bool
) -> None:
    """`save_model` of a model after SFT; after LoRA the adapter alone, with the identity of `base`, which it belongs on
    (folder or hub name)."""
    if adapter is None:
        save_model(model, tokenizer, target, credentialed)
        return

    def write(partial: Path) -> None:
        write_adapter_folder(adapter, base, partial, target, str(model.dtype).removeprefix("torch."))
        model.config.save_pretrained(partial)
        tokenizer.save_pretrained(partial)

    _save(target, write, credentialed)


def start_of(config: Config, checkpoints: Path) -> str:
    """Folder or hub name of the model that a run's SFT starts from. checkpoints: of the run."""
    return str(checkpoints / BASE) if config.model.path is None else model_path(config)


def _save(target: Path, write: Callable[[Path], None], credentialed: bool) -> None:
    """Have `write` fill a folder and give it the name `target`, sealed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _sweep(target)
    partial = _beside(target, "partial")
    partial.mkdir()
    try:
        write(partial)
        write_mark(partial, credentialed)
        manifest.seal(partial)
        _move(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _move(partial: Path, target: Path) -> None:
    """Give a finished folder its name, unless a sound one has it. A damaged one gives way."""
    while True:
        try:
            os.rename(partial, target)
            return
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
        if manifest.fault(target) is None:
            return
        with suppress(FileNotFoundError):  # another process may have put it away
            damaged = _beside(target, "old")
            os.rename(target, damaged)
            shutil.rmtree(damaged)


def _beside(target: Path, kind: str) -> Path:
    """A name next to `target` that no one else has."""
    return target.with_name(f".{target.name}.{uuid4().hex}.{kind}")


def _sweep(target: Path) -> None:
    """Remove what killed processes left beside `target`; what was touched lately may still be in the making."""
    for left in target.parent.glob(f".{target.name}.*.*"):
        with suppress(FileNotFoundError):
            if left.suffix in (".partial", ".old") and is_old(left):
                shutil.rmtree(left, ignore_errors=True)


def load_stage(path: Path, config: Config) -> tuple[Any, Any]:
    """`load_with_base` of a folder that `save_model` wrote, or of any other model. BadInput for a damaged one."""
    check_saved(path)
    return load_with_base(str(path), config)


def check_saved(path: Path) -> None:
    """BadInput for a damaged folder that `save_model` wrote."""
    if (path / manifest.MANIFEST).is_file() and (damage := manifest.fault(path)):
        raise BadInput(f"{damage}: delete {path}, and whatever made it makes it again.")


def model_size(folder: Path, base: str | None = None) -> dict[str, int] | None:
    """Count parameters and vocabulary of a saved transformers model, of an adapter's base; None for a folder without
    safetensors. base: where that of an adapter may be, besides the place that its folder names."""
    if base_of(folder) is not None:
        try:
            base_folder = folder_of(find_base(folder, base))
        except BadInput:
            return None
        return None if base_folder is None else model_size(base_folder)
    files = sorted(folder.glob("*.safetensors"))
    if not files or not (folder / "config.json").is_file():
        return None
    from safetensors import safe_open

    count = 0
    for file in files:
        with safe_open(file, "pt") as tensors:
            count += sum(math.prod(tensors.get_slice(name).get_shape()) for name in tensors.keys())
    config = json.loads((folder / "config.json").read_text())
    vocabulary = config.get("vocab_size") or config.get("text_config", {}).get("vocab_size", 0)
    return {"parameters": count, "vocabulary": int(vocabulary)}


def load_sft(config: Config, folder: Path) -> tuple[Any, Any]:
    """The warmed-up policy of a run. BadInput when the run has none, or a damaged one."""
    check_sft(folder)
    return load_with_base(str(folder / SFT), config)


def check_sft(folder: Path) -> None:
    """BadInput when a run has no warmed-up policy in its `folder` of checkpoints, or a damaged one."""
    if not (folder / SFT / "config.json").is_file():
        raise BadInput(f"{folder / SFT} holds no model: train the run first, or point eval.checkpoint at one that has.")
    if damage := manifest.fault(folder / SFT):
        raise BadInput(f"{damage}: delete {folder} to train the run again.")
