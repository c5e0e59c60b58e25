"""Record whether a trained agent retrieves for the training samples of SFT, for system.pruned_by of the comparators.

    ghar retrievals system=ghar task=read run_dir=runs/ghar    # writes runs/ghar/retrievals.parquet

The samples are the `trainer.warmup.samples` that a teacher tries of the run's training split. In a clone,
`python launch/record_retrievals.py` is the same.
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
    from ghar.trainers.evaluation.retrievals import record_retrievals  # heavy, so after all checks

    print(f"Retrievals: {record_retrievals(config)}")


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and no launcher hides a library of its name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
