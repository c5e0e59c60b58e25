"""Train the patient encoder of a task, keep its vectors, and print how well it predicts by itself (Table 3,
GraphWalker): python launch/train_encoder.py system=graphwalker task=series_mortality system.encoder=smart

Leaves encoder.json in run_dir. An encoder that was trained before, for the same samples and seed, is not trained again.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.config import Config


def run(config: Config) -> None:
    import json

    from ghar.envs.graphwalker import series
    from ghar.envs.graphwalker.encoders.embeddings import predictor_scores
    from ghar.envs.graphwalker.settings import Settings
    from ghar.envs.records import Records
    from ghar.errors import BadInput
    from ghar.metrics.runfolder import write_whole
    from ghar.trainers.runs.models import use_cores

    settings = config.system
    if not isinstance(settings, Settings):
        raise BadInput("train_encoder.py trains what system.encoder names: add system=graphwalker.")
    if not config.task.name.startswith(series.PREFIX):
        raise BadInput(f"task={config.task.name} has no time series to encode: choose a task=series_....")
    use_cores(config.threads)
    cases, encoder = series.series_material(Records(config), settings), series.encoder_of(settings)
    splits, draw = cases.splits, {"seed": config.seed, "resamples": config.eval.bootstrap}
    scores = predictor_scores(cases.embeddings, cases.task, splits, **draw)
    about = f"{cases.task.name}, {len(splits.train)}/{len(splits.valid)}/{len(splits.test)} samples"
    print(f"{encoder} on {about}: mean±deviation over {config.eval.bootstrap} resamples, in percent")
    for name, spread in scores.items():
        print(f"  {name:8} {spread}")
    result = {"encoder": encoder, "task": cases.task.name, "seed": config.seed}
    result |= {"scores": {name: spread.as_list() for name, spread in scores.items()}}
    write_whole(Path(config.run_dir) / "encoder.json", json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    # The repository root instead of launch/: found from any folder, and evaluate.py hides no library of that name.
    sys.path[0] = str(next(p for p in Path(__file__).resolve().parents if (p / "ghar" / "__init__.py").is_file()))
    from ghar.launch.entry import launch

    launch(run)
