"""A run that begins with another run's warm-up, so that both differ in what comes after alone."""

from __future__ import annotations

import shutil
from pathlib import Path

from ghar.config import Config
from ghar.errors import BadInput
from ghar.metrics.runfolder import RunFolder
from ghar.trainers.runs.models import SFT
from ghar.trainers.runs.resume import as_yaml


def begin_from(source: Path, config: Config) -> None:
    """Make config.run_dir, which must not be there, an unfinished run of `config` with base model, examples, SFT and
    metrics of the run `source`. The folder is whole or absent. BadInput for a source without a warm-up."""
    target = Path(config.run_dir)
    if not (source / "checkpoints" / SFT).is_dir():
        raise BadInput(
            f"{source} has no checkpoints/{SFT} to start from: finish its training, with a variant in eval.variants "
            "that uses it."
        )
    half = target.with_name(f".{target.name}.fork")
    shutil.rmtree(half, ignore_errors=True)  # of a start that was cut short
    (half / "checkpoints").mkdir(parents=True)
    for name in ("base", SFT):
        if (source / "checkpoints" / name).is_dir():
            shutil.copytree(source / "checkpoints" / name, half / "checkpoints" / name)
    shutil.copy(source / "checkpoints" / "lessons.npz", half / "checkpoints")
    own = RunFolder.open(half)
    for row in RunFolder(source).metrics():
        if row["phase"] != "rl":
            own.log(row)
    own.write_config(as_yaml(config))
    half.rename(target)
