"""What changes from update to update: the learning rate, and the weight of the term to the reference policy."""

from __future__ import annotations

import math
from typing import Literal

Schedule = Literal["constant", "linear", "cosine"]
HORIZON = 0.1  # K of Ziegler et al. 2019: how fast the weight follows
LARGEST_ERROR = 0.2  # their bound on one update's relative error


def rate(schedule: Schedule, step: int, updates: int) -> float:
    """The share of the learning rate that update `step` of `updates` (counted from 1) takes.

    It stays (constant), or falls in equal steps (linear) or along half a cosine, to nothing after the last update.
    """
    done = (step - 1) / max(1, updates)
    return {"constant": 1.0, "linear": 1.0 - done, "cosine": (1.0 + math.cos(math.pi * done)) / 2}[schedule]


def adapted(weight: float, kl: float, target: float) -> float:
    """The KL term's weight after a batch at distance `kl` from the reference: β (1 + K clip(kl / target - 1, ±0.2))
    (Ziegler et al. 2019, "Fine-tuning language models from human preferences", section 2.2)."""
    error = min(LARGEST_ERROR, max(-LARGEST_ERROR, kl / target - 1.0))
    return weight * (1.0 + HORIZON * error)
