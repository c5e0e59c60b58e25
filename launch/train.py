"""Train a system from raw tables to an evaluated policy.

python launch/train.py system=ghar +experiment=mimic4_los
python launch/train.py plan=true +experiment=mimic4_los     # what it would take
python launch/train.py trainer.method=plain +experiment=quick    # slowly, by the one file trainers/plain.py
torchrun --standalone --nproc-per-node 2 launch/train.py system=ehr_rag task=guo_los deepspeed=zero2
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
    if config.plan:
        from ghar.trainers.plan import show

        show(config)
        return
    from ghar.trainers.runs.resume import finished

    if finished(config):
        from ghar.trainers.evaluation.report import report

        print(f"Report: {report(Path(config.run_dir))}")
        return
    from ghar.trainers.recipe import train  # heavy, so only once the configuration is known to be good

    train(config)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run, plans=True)
