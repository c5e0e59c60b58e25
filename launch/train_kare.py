"""Distil KARE's model and evaluate it: torchrun launch/train_kare.py +experiment=mimic4_mortality, or plain python."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.config import Config


def run(config: Config) -> None:
    from ghar.errors import BadInput

    if config.policy.name != "kare":
        raise BadInput(f"policy={config.policy.name} is not trained here: choose policy=kare.")
    from trainers.kare_train import train  # heavy, so only once the configuration is known to be good

    train(config)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from launch.entry import launch

    launch(run)
