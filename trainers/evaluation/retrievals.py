"""Whether a trained agent retrieves for the training samples of SFT: what other systems' SFT data are pruned by."""

from __future__ import annotations

import shutil
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import polars as pl

from ghar.config import Config
from ghar.disk import report_full_disk, whole
from ghar.envs import system as systems
from ghar.envs.play import teacher_cases
from ghar.envs.records import Records, of_credentialed
from ghar.envs.rollout import derive_seed
from ghar.envs.system import System
from ghar.errors import BadInput
from ghar.metrics.runfolder import RETRIEVALS, RunFolder
from ghar.privacy import ask_gate, keep_log
from ghar.trainers.evaluation.evaluate import weights_and_keys
from ghar.trainers.evaluation.playing import EvaluationRun
from ghar.trainers.evaluation.weights import RunStages, answering, find
from ghar.trainers.memory import check_machine
from ghar.trainers.runs.models import use_cores
from ghar.trainers.runs.resume import hold
from ghar.trainers.runs.samples import data_of, data_print, differences
from ghar.trainers.sharding import claim

SCHEMA = {"sample_id": pl.String, "retrieved": pl.Boolean}
AGAIN = "start the same command again, it goes on from the samples that it has played."


def record_retrievals(config: Config) -> Path:
    """Play the main variant on the training samples that a warm-up's teacher tries (trainer.warmup.samples), by a run's
    best weights or those of eval.checkpoint, and write for each whether it decided to retrieve; null where its episode
    failed.

    What a killed start has played is not played again. BadInput for a run that is not trained to its end, and for one
    of other data.
    """
    path = Path(config.run_dir)
    stage = find(config).names("trained")
    if stage == "base":
        raise BadInput(f"run_dir={path} has no trained weights: train it first.")
    with ExitStack() as held, report_full_disk(path, AGAIN):
        use_cores(config.threads)
        ask_gate(config, lambda: of_credentialed(config))
        keep_log(config)
        hold(held, path)
        folder, records = RunFolder.open(path), Records(config)
        _check_finished(config, folder)
        system = systems.build(records)
        ask_gate(config, lambda: system.origin.credentialed)  # once more, of what has been read
        _check_data(system, records, folder)
        check_machine(config, training=False)
        parts = path / "episodes" / ".retrievals"
        table = pl.DataFrame(_decisions(system, config, find(config), stage, parts), SCHEMA, orient="row")
        with whole(path / RETRIEVALS) as half:
            table.write_parquet(half)
        shutil.rmtree(parts)
    return path / RETRIEVALS


def _check_finished(config: Config, folder: RunFolder) -> None:
    """BadInput for a run whose weights are not its last: what it does now is not what it will do."""
    if config.eval.checkpoint is None and "time" not in (folder.summary() or {}):
        raise BadInput(
            f"run_dir={folder.path} holds an unfinished training: train it to its end, or name weights in "
            "eval.checkpoint."
        )


def _check_data(system: System[Any], records: Records, folder: RunFolder) -> None:
    """BadInput where the command line is of other samples than the run."""
    kept = data_of(folder)
    wrong = [] if kept is None else differences(kept, data_print(system, records), texts=False)
    if wrong:
        raise BadInput(
            f"run_dir={folder.path} is of other data ({'; '.join(wrong)}): give the data, task and seed that it was "
            "trained with."
        )


def _decisions(
    system: System[Any], config: Config, run_stages: RunStages, stage: str, parts: Path
) -> list[tuple[str, bool | None]]:
    """Each sample that a teacher tries, and whether it was retrieved for. Whole episodes stay on the disk."""
    ids = [case.sample_id for case in teacher_cases(system, config)]
    claim(parts, f"{weights_and_keys(config, run_stages)} {derive_seed(ids):016x}")
    with answering(config, system, run_stages) as opened, opened(stage) as answers:
        own = system.read_by(answers.reader)
        run, cases = EvaluationRun(own, config, None, parts), teacher_cases(own, config)
        read = run.play(own.variants[own.main], answers.policy, "train", cases=cases)
        return [(row["sample_id"], row["retrieved"] if row["failure"] is None else None) for row in read()]
