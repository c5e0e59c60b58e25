"""Evaluate a system: python launch/evaluate.py +experiment=mimic4_los (a trained run of GHAR), or policy=NAME."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.config import Config


EVALUATORS = {  # policy.name -> module with evaluate(config)
    "ghar": "trainers.evaluate",
    "graphwalker": "trainers.graphwalker",
    "exprag": "trainers.exprag",
    "ehr_rag": "trainers.ehr_rag",
    "kare": "trainers.kare",
}


def run(config: Config) -> None:
    # heavy, so only once the configuration is known to be good
    importlib.import_module(EVALUATORS[config.policy.name]).evaluate(config)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(Path(__file__).resolve().parents[1])
    from launch.entry import launch

    launch(run)
