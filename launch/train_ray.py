"""Train a system on Ray: workers that train, actors that play episodes, actors that retrieve (section ray of conf/).

python launch/train_ray.py ray=cluster +experiment=mimic4_los ray.rollout_actors=1
ray job submit --working-dir . -- python launch/train_ray.py ray=cluster run_dir=/shared/run data.cache=/shared/cache
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
    try:
        from ghar.trainers.ray.train import train  # heavy, so only once the configuration is known to be good
        from ghar.trainers.recipe import train as recipe
    except ModuleNotFoundError as error:
        raise BadInput(f"Ray needs {error.name}, which is not installed: pip install '.[ray]'.") from error
    train(config, recipe)


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
