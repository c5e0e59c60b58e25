"""Settings of SFT, and the arguments that TRL's trainer gets for them in one process or several."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any, Literal

from ghar.config import DeepspeedConfig
from ghar.errors import BadInput
from ghar.trainers.runs.distributed import load_deepspeed, world
from ghar.trainers.runs.zero import ALONE, zero_config

SAVES = 10  # checkpoints of a training that keeps any


@dataclass(frozen=True)
class SFTSettings:
    """steps: optimiser steps; batch_size: pairs a step; micro_batch: pairs a forward pass; lr: peak learning rate;
    warmup: share of the steps it rises over before it falls to zero as `schedule` says; weight_decay, max_grad_norm: as
    named; max_length: tokens, longer pairs are refused; log_every: steps a point of the loss curve covers, and after
    which the validation loss is computed;
    grouped: whether pairs that begin alike are trained on in one step, which then reads less and is mixed less: not for
    a model that is made from nothing, which such steps keep from learning to read;
    finetune: "full", or "lora" with rank and alpha, merged into the model at the end; deepspeed: what several
    processes share out; dtype: of the model's weights."""

    steps: int
    batch_size: int
    lr: float
    micro_batch: int
    warmup: float = 0.05
    schedule: Literal["linear", "cosine"] = "linear"
    weight_decay: float = 0.0
    max_grad_norm: float = 1.0
    max_length: int = 4096
    log_every: int = 20
    grouped: bool = True
    finetune: Literal["full", "lora"] = "full"
    rank: int = 16
    alpha: int = 32
    deepspeed: DeepspeedConfig = ALONE
    dtype: str = "float32"
    seed: int = 0


def has_masters(cfg: SFTSettings) -> bool:
    """Whether a model in bfloat16 is trained on float32 copies of its weights: all of them, without DeepSpeed's own."""
    return cfg.finetune == "full" and cfg.dtype == "bfloat16" and cfg.deepspeed.stage is None


def arguments_of(cfg: SFTSettings, folder: str, cpu: bool, kept: bool, validated: bool) -> Any:
    """An SFTConfig. kept: with checkpoints in `folder`; validated: with a validation loss at every point of the loss
    curve. BadInput for batches that the processes cannot share."""
    from trl.trainer.sft_config import SFTConfig

    if cfg.batch_size % cfg.micro_batch:
        raise BadInput(f"sft batch_size {cfg.batch_size} is not a multiple of micro_batch {cfg.micro_batch}")
    if cfg.batch_size % world():
        raise BadInput(f"sft batch_size {cfg.batch_size} is not a multiple of the number of processes, {world()}")
    own = cfg.batch_size // world()
    micro_batch = math.gcd(own, cfg.micro_batch)
    sharded = cfg.deepspeed.stage is not None
    if sharded:
        _announce_deepspeed(cpu)
    arguments = SFTConfig(
        output_dir=folder,
        max_steps=cfg.steps,
        per_device_train_batch_size=micro_batch,
        gradient_accumulation_steps=own // micro_batch,
        deepspeed=_deepspeed(cfg, micro_batch, own // micro_batch) if sharded else None,
        learning_rate=cfg.lr,
        lr_scheduler_type=cfg.schedule,
        warmup_steps=int(cfg.warmup * cfg.steps),
        weight_decay=cfg.weight_decay,
        max_grad_norm=cfg.max_grad_norm,
        seed=cfg.seed,
        data_seed=cfg.seed,
        use_cpu=cpu,  # under DeepSpeed the device is the processes'; without it transformers refuses bfloat16 there
        accelerator_config={"use_configured_state": True} if sharded else None,
        bf16=(sharded or has_masters(cfg)) and cfg.dtype == "bfloat16",
        gradient_checkpointing=cfg.deepspeed.checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False} if cfg.deepspeed.checkpointing else None,
        max_length=None,
        dataset_kwargs={"skip_prepare_dataset": True},
        remove_unused_columns=False,
        train_sampling_strategy="sequential",
        logging_strategy="steps",
        logging_steps=cfg.log_every,
        save_strategy="steps" if kept or validated else "no",
        # where a point of the loss curve ends: what is summed up for the next one is not part of a checkpoint
        save_steps=cfg.log_every if validated else cfg.log_every * -(-cfg.steps // (SAVES * cfg.log_every)),
        save_total_limit=2,
        eval_strategy="steps" if validated else "no",
        eval_steps=cfg.log_every,
        load_best_model_at_end=validated,
        metric_for_best_model="eval_loss" if validated else None,
        greater_is_better=False if validated else None,
        report_to=[],
        disable_tqdm=True,
        ddp_find_unused_parameters=False,  # every parameter takes part in every step
        dataloader_num_workers=0,
        dataloader_pin_memory=not cpu,
    )
    arguments._n_gpu = min(arguments.n_gpu, 1)  # a process uses its own GPU, however many it sees
    return arguments


def _announce_deepspeed(cpu: bool) -> None:
    """Tell accelerate of the processes: on a CPU it takes DeepSpeed's for one unless the backend is named."""
    from accelerate.state import AcceleratorState, PartialState

    load_deepspeed()
    AcceleratorState._reset_state(reset_partial_state=True)
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    try:
        PartialState(backend="gloo" if cpu else None)
    finally:
        del os.environ["ACCELERATE_USE_DEEPSPEED"]


def _deepspeed(cfg: SFTSettings, micro_batch: int, accumulate: int) -> dict[str, Any]:
    return zero_config(cfg.deepspeed, cfg.dtype, cfg.max_grad_norm) | {
        "train_micro_batch_size_per_gpu": micro_batch,
        "gradient_accumulation_steps": accumulate,
    }
