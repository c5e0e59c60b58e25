"""Run by torchrun for tests/gpu/test_training.py: one update with DeepSpeed and the same without, into a file.

python zero_step.py STAGE {float32,bfloat16} {full,lora} {cuda,cpu} OUT
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ghar.config import DeepspeedConfig
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.learner import DeepSpeedLearner, PlainLearner
from ghar.trainers.rl.mappo import improve
from ghar.trainers.runs.distributed import together
from tests.gpu.batches import forget_peak, make_batch, make_model, peak_gb, update_config
from tests.trainers.tiny import for_two


def main(stage: int, dtype: str, finetune: Any, device: str, out: Path) -> None:
    with together(stage):
        first = ActorCritic(make_model(device, dtype), for_two(finetune, rank=8))
        second = copy.deepcopy(first)
        batch, cfg = make_batch(first, device), update_config(device, dtype)
        plain = PlainLearner(first, adam(first), cfg.max_grad_norm)
        found = {"plain": measure(plain, batch, cfg, device)}
        zero: Any = f"zero{stage}"
        shared = DeepspeedConfig(zero, checkpointing=False)
        sharded = DeepSpeedLearner(second, adam(second), shared, dtype, cfg.max_grad_norm)
        found["zero"] = measure(sharded, batch, cfg, device)
        with sharded.whole():
            own, other = first.trainable_state(), second.trainable_state()
            apart = [float((own[name].float() - other[name].float()).abs().max()) for name in own]
        out.write_text(json.dumps({**found, "largest change apart": max(apart)}))


def adam(actor: ActorCritic) -> torch.optim.Optimizer:
    """A large eps, so that where a gradient is nothing but rounding its sign decides nothing."""
    return torch.optim.AdamW(actor.parameter_groups(1e-3, 1e-3), weight_decay=0.0, eps=1e-4)


def measure(learner: Any, batch: Any, cfg: Any, device: str) -> dict[str, float]:
    forget_peak(device)
    report = improve(learner, batch, cfg, np.random.default_rng(0))
    return {**report, "peak_gb": peak_gb(device)}


if __name__ == "__main__":
    stage, dtype, finetune, device, out = sys.argv[1:]
    main(int(stage), dtype, finetune, device, Path(out))
