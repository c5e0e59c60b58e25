"""Train a system by plain gradient steps: python gradient_steps.py OVERRIDE [OVERRIDE ...], also under torchrun.

AdamW divides a gradient by its own size. Where a gradient is nothing but rounding, which no two processors and no two
ways of adding up share, it turns the sign of a rounding error into a whole step. A gradient step keeps it as small as
it is, so that runs which should agree can be compared after training, too.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parents[2]


class GradientSteps(torch.optim.SGD):
    """Gradient descent behind AdamW's signature."""

    def __init__(self, params: Any, lr: float = 1e-3, **adam: Any) -> None:
        super().__init__(params, lr=lr)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)
    torch.optim.AdamW = GradientSteps  # ghar.trainers.rl.learner and transformers' Trainer look it up when they need it
    from ghar.launch.entry import load
    from ghar.trainers.recipe import train

    train(load(sys.argv[1:]))
