"""Train the navigation environment with RLlib: python launch/train_rllib.py +experiment=navigation"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.config import Config


def run(config: Config) -> None:
    from ghar.errors import BadInput

    try:
        from ghar.trainers.rllib.ppo import train  # heavy, so only once the configuration is known to be good
    except ModuleNotFoundError as error:
        raise BadInput(f"RLlib needs {error.name}, which is not installed: pip install '.[ray]'.") from error
    train(config)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
