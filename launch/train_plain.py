"""Train a system the slow and direct way: trainers/plain.py, one file that is read from top to bottom.

python launch/train_plain.py +experiment=quick run_dir=runs/plain
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.config import Config


def run(config: Config) -> None:
    from ghar.errors import BadInput
    from ghar.inputs import missing

    if wrong := missing(config):
        raise BadInput("\n".join(wrong))
    from ghar.trainers.plain import train  # heavy, so only once the configuration is known to be good

    train(config)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
