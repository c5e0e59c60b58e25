"""How often a trained agent retrieves for each of its training samples: what other systems' SFT data are pruned by."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import polars as pl

from ghar.config import Config
from ghar.disk import whole
from ghar.envs import system as systems
from ghar.envs.records import Records, of_credentialed
from ghar.errors import BadInput
from ghar.metrics.runfolder import RETRIEVALS
from ghar.privacy import ask_gate
from ghar.trainers.evaluation.playing import score
from ghar.trainers.evaluation.weights import answering, find
from ghar.trainers.runs.models import use_cores
from ghar.trainers.runs.resume import hold


def record_retrievals(config: Config) -> Path:
    """Play the main variant by the run's newest weights on its training samples, and write sample_id and retrievals.

    BadInput for a run without trained weights.
    """
    found, path = find(config), Path(config.run_dir)
    stage = found.names("trained")
    if stage == "base":
        raise BadInput(f"run_dir={path} has no trained weights: train it first.")
    with ExitStack() as held:
        use_cores(config.threads)
        ask_gate(config, lambda: of_credentialed(config))
        hold(held, path)
        system = systems.build(Records(config))
        with answering(config, system, found, {stage}) as opened, opened(stage) as answers:
            own = system.read_by(answers.reader)
            rows = score(own, config, own.variants[own.main], answers.policy, "train")
        table = pl.DataFrame({name: [row[name] for row in rows] for name in ("sample_id", "retrievals")})
        with whole(path / RETRIEVALS) as half:
            table.write_parquet(half)
    return path / RETRIEVALS
