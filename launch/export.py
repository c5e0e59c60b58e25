"""Write adapters, merged weights and a model card of a trained run: python launch/export.py +experiment=mimic4_los"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.config import Config


def run(config: Config) -> None:
    from ghar.trainers.export import export  # heavy, so only once the configuration is known to be good

    export(config)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and no launcher hides a library of its name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
