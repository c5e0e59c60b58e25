"""What changes from update to update: the learning rate, and weights of the loss.

A schedule gives shares of keys of trainer.rl. Those with a name scale the learning rate alone; a module of the user's
own has a function for each key that it scales (docs/extending.md).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache
from numbers import Real
from types import ModuleType
from typing import Any, Literal, TypeVar

from ghar import ledger
from ghar.config import RlConfig, TrainerConfig
from ghar.errors import BadInput
from ghar.extensions import import_module, is_module
from ghar.metrics.runfolder import RunFolder

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


def shares(schedule: str, step: int, updates: int) -> Mapping[str, float]:
    """The share of each key in `SCHEDULED` that update `step` of `updates` (counted from 1) takes; 1 changes nothing.

    BadInput for a module that is missing, scales no key, or gives what is no share in any update.
    """
    return table(schedule, updates)[step - 1]


@cache
def table(schedule: str, updates: int) -> tuple[Mapping[str, float], ...]:
    """The `shares` of all updates: a module of the user's own is asked once a process for each."""
    steps, usual = range(1, updates + 1), dict.fromkeys(SCHEDULED, 1.0)
    if not is_module(schedule):
        return tuple(usual | {"lr": rate(schedule, step, updates)} for step in steps)  # type: ignore[arg-type]
    keys, module = scaled_by(schedule), import_module("trainer.rl.schedule", schedule)
    return tuple(usual | {key: _share(module, key, step, updates) for key in keys} for step in steps)


def _share(module: ModuleType, key: str, step: int, updates: int) -> float:
    """What a module of the user's own gives for an update. BadInput for what is no share."""
    share: Any = getattr(module, key)(step, updates)
    number = math.nan
    if isinstance(share, Real) and not isinstance(share, bool):
        with suppress(OverflowError):  # a whole number may be larger than any float
            number = float(share)
    if not 0 <= number < math.inf:
        raise BadInput(
            f"trainer.rl.schedule={module.__name__}: {key}({step}, {updates}) is {share!r}, which is no share: return "
            "a number of at least 0."
        )
    return number


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


def check_schedule(trainer: TrainerConfig) -> None:
    """BadInput for a schedule that scales what has no effect, or fails in any update, before the first of them."""
    rl, method, named = trainer.rl, trainer.method, f"trainer.rl.schedule={trainer.rl.schedule}"
    keys = scaled_by(rl.schedule) if is_module(rl.schedule) else []
    if method == "rft" and (idle := [key for key in keys if key != "lr"]):
        raise BadInput(
            f"{named} scales {', '.join(idle)}, which trainer.method=rft does not use: leave lr alone in it."
        )
    if idle := [f"trainer.rl.{key}" for key in keys if getattr(rl, key) == 0]:
        raise BadInput(f"{named} scales {', '.join(idle)}, which is 0: set it above 0, or leave its function out.")
    if "kl" in keys and rl.kl_target is not None:
        raise BadInput(f"{named} and trainer.rl.kl_target both set the KL weight: drop one.")
    table(rl.schedule, rl.updates)


def hold_schedule(folder: RunFolder, rl: RlConfig) -> None:
    """Note in the ledger which shares a module of the user's own gives a run. BadInput where it began with others."""
    if not is_module(rl.schedule):
        return
    digest = hashlib.sha256(json.dumps(table(rl.schedule, rl.updates), sort_keys=True).encode()).hexdigest()
    kept = [row["sha256"] for row in ledger.read(folder.path) or () if row["what"] == "schedule"]
    if not kept:
        ledger.append(folder.path, {"what": "schedule", "sha256": digest})
    elif kept[-1] != digest:
        raise BadInput(
            f"{folder.path} holds a run whose trainer.rl.schedule={rl.schedule} gave other shares: put the module back "
            "as it was, or choose another run_dir."
        )


def adapted(weight: float, kl: float, target: float) -> float:
    """The KL term's weight after a batch at distance `kl` from the reference: β (1 + K clip(kl / target - 1, ±0.2))
    (Ziegler et al. 2019, "Fine-tuning language models from human preferences", section 2.2)."""
    error = min(LARGEST_ERROR, max(-LARGEST_ERROR, kl / target - 1.0))
    return weight * (1.0 + HORIZON * error)
