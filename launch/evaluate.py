"""Evaluate a run, or a system that was never trained: python launch/evaluate.py system=NAME task=read

torchrun --standalone --nproc-per-node 2 launch/evaluate.py system=NAME task=read    # each process plays its share
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

    if wrong := missing(config, training=False):
        raise BadInput("\n".join(wrong))
    if config.eval.checkpoint is not None and not Path(config.eval.checkpoint).is_dir():
        named = f"eval.checkpoint={config.eval.checkpoint}"
        raise BadInput(f"{named} is no folder: name one such as RUN/checkpoints/step-10.")
    from ghar.trainers.evaluation.evaluate import evaluate  # heavy, so only once the configuration is known to be good

    evaluate(config)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
