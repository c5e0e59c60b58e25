"""What changes from update to update: the learning rate, and weights of the loss.

A schedule gives shares of keys of trainer.rl. Those with a name scale the learning rate alone; a module of the user's
own has a function for each key that it scales (docs/extending.md).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal, TypeVar

from ghar.config import RlConfig
from ghar.errors import BadInput
from ghar.extensions import import_module, is_module

Schedule = Literal["constant", "linear", "cosine"]
# keys of trainer.rl; lr: with value_lr of heads, and trainer.rft.lr
SCHEDULED: tuple[str, ...] = ("lr", "kl", "entropy", "clip")
HORIZON = 0.1  # K of Ziegler et al. 2019: how fast the weight follows
LARGEST_ERROR = 0.2  # their bound on one update's relative error

Settings = TypeVar("Settings")


def rate(schedule: Schedule, step: int, updates: int) -> float:
    """The share of the learning rate that update `step` of `updates` (counted from 1) takes.

    It stays (constant), or falls in equal steps (linear) or along half a cosine, to nothing after the last update.
    """
    done = (step - 1) / max(1, updates)
    return {"constant": 1.0, "linear": 1.0 - done, "cosine": (1.0 + math.cos(math.pi * done)) / 2}[schedule]


def shares(schedule: str, step: int, updates: int) -> dict[str, float]:
    """The share of each key in `SCHEDULED` that update `step` of `updates` (counted from 1) takes; 1 changes nothing.

    BadInput for a module that is missing, scales no key, or gives what is no share.
    """
    found = dict.fromkeys(SCHEDULED, 1.0)
    if not is_module(schedule):
        return found | {"lr": rate(schedule, step, updates)}  # type: ignore[arg-type]
    for key in scaled_by(schedule):
        share: Any = getattr(import_module("trainer.rl.schedule", schedule), key)(step, updates)
        if type(share) not in (int, float) or not 0 <= share < math.inf:
            raise BadInput(
                f"trainer.rl.schedule={schedule}: {key}({step}, {updates}) is {share!r}, which is no share: return a "
                "number of at least 0."
            )
        found[key] = float(share)
    return found


def scaled_by(schedule: str) -> list[str]:
    """The keys that a module of the user's own has functions for. BadInput where it has none."""
    module = import_module("trainer.rl.schedule", schedule)
    keys = [key for key in SCHEDULED if callable(getattr(module, key, None))]
    if not keys:
        raise BadInput(f"trainer.rl.schedule={schedule} has none of the functions {', '.join(SCHEDULED)}: define one.")
    return keys


def scaled(settings: Settings, share: Mapping[str, float]) -> Settings:
    """The weights of the loss in `settings` (trainer.rl, or what an update makes of it) by their shares."""
    own: Any = settings
    return replace(own, kl=own.kl * share["kl"], entropy=own.entropy * share["entropy"], clip=own.clip * share["clip"])


def check_schedule(rl: RlConfig) -> None:
    """BadInput for a schedule that fails in any update, before the first of them."""
    for step in range(1, rl.updates + 1) if is_module(rl.schedule) else ():
        shares(rl.schedule, step, rl.updates)
    if not is_module(rl.schedule) or "kl" not in scaled_by(rl.schedule):
        return
    if rl.kl == 0:
        raise BadInput(f"trainer.rl.schedule={rl.schedule} scales trainer.rl.kl, which is 0: set it above 0.")
    if rl.kl_target is not None:
        raise BadInput(f"trainer.rl.schedule={rl.schedule} and trainer.rl.kl_target both set the KL weight: drop one.")


def adapted(weight: float, kl: float, target: float) -> float:
    """The KL term's weight after a batch at distance `kl` from the reference: β (1 + K clip(kl / target - 1, ±0.2))
    (Ziegler et al. 2019, "Fine-tuning language models from human preferences", section 2.2)."""
    error = min(LARGEST_ERROR, max(-LARGEST_ERROR, kl / target - 1.0))
    return weight * (1.0 + HORIZON * error)
