"""Checkpoints that DeepSpeed wrote in one number of processes, read in another; its own reader refuses them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from ghar.trainers.rl.resharding import ZeroOptimizer, layout_of, reshard
from ghar.trainers.runs.distributed import rank, world

OPTIMIZER = "optimizer_state_dict"  # DeepSpeed's key of a process's part


@contextmanager
def any_processes() -> Iterator[None]:
    """For the duration, transformers' trainer reads checkpoints of any number of processes: the one it resumes from,
    and the one with the best weights."""
    with patch("transformers.trainer.deepspeed_load_checkpoint", load_checkpoint):
        yield


def load_checkpoint(engine: Any, folder: str, load_module_strict: bool = True) -> None:
    """Load model, optimiser and schedule of a checkpoint of transformers into DeepSpeed's `engine`."""
    from transformers.integrations.deepspeed import deepspeed_load_checkpoint

    tag = Path(folder) / (Path(folder) / "latest").read_text().strip()
    parts = sorted(tag.glob("*zero_pp_rank_*optim_states.pt"), key=_rank_of)
    if len(parts) in (0, world()):  # without ZeRO every process holds all
        deepspeed_load_checkpoint(engine, folder, load_module_strict)
        return

    def own(*of: object, **kwargs: object) -> bool:
        _load_parts(engine.optimizer, engine.zero_optimization_stage() == 3, parts)
        return True

    # ZeRO-3's model file of a process names its part and holds no trained weight: the first one's serves all
    model = str(min(tag.glob("*model_states.pt")))
    with patch.multiple(engine, _load_zero_checkpoint=own, _get_all_ckpt_names=lambda *of: [model]):
        deepspeed_load_checkpoint(engine, folder, load_module_strict)


def _rank_of(part: Path) -> int:
    """Return the process that wrote a file: bf16_zero_pp_rank_10_mp_rank_00_optim_states.pt."""
    return int(part.name.partition("zero_pp_rank_")[2].partition("_")[0])


def _load_parts(outer: ZeroOptimizer, by_weight: bool, files: list[Path]) -> None:
    """Give DeepSpeed's optimiser this process's part, cut from those in `files`, in its own form."""
    inner, masters = ("optimizer_state_dict", "fp32_flat_groups") if by_weight else (
        "base_optimizer_state", "single_partition_of_fp32_groups"
    )  # fmt: skip
    # they hold DeepSpeed's own objects; what a run's folder holds is sealed
    saved = [torch.load(file, map_location="cpu", weights_only=False, mmap=True)[OPTIMIZER] for file in files]
    parts = [{"optimizer": part[inner], "masters": part[masters]} for part in saved]
    now = outer.state_dict()
    state = reshard(parts, layout_of(outer, by_weight, world()), now[inner], rank())
    now |= {inner: state["optimizer"], masters: state["masters"]}
    outer.load_state_dict({rank(): now}, load_optimizer_states=True, load_from_fp32_weights=True)
