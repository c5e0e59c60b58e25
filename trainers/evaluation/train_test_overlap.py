"""Weights of another run on these test patients: refused where that run has trained on some of them (GHAR, Section V-C:
a test across tasks or data sets must not meet patients of the training)."""

from __future__ import annotations

from pathlib import Path

from ghar.config import Config
from ghar.configure import build
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.envs.records import Records
from ghar.envs.system import settings_of
from ghar.errors import BadInput
from ghar.trainers.runs.kept_config import kept_config


def check_overlap(config: Config, records: Records) -> None:
    """BadInput where eval.checkpoint comes from a run on the same patients that trained on some of the test's.

    A checkpoint without its run's configuration, and tasks that show no visits, are not looked at.
    """
    other = trained_with(config)
    if other is None or not _same_patients(config, other):
        return
    if not {config.task.name, other.task.name} <= {*VISIT_TASKS, "labels"}:
        return
    splits = Records(other).splits
    seen = {sample.subject_id for sample in (*splits.train, *splits.valid)}
    tested = {sample.subject_id for sample in records.splits.test}
    if both := len(seen & tested):
        raise BadInput(
            f"{both} of {len(tested)} test patients were in the training or validation of {other.run_dir}: train and "
            "evaluate with task.split_of=cohort and one task.split_seed, so that no patient is on both sides."
        )


def trained_with(config: Config) -> Config | None:
    """The configuration of the run that eval.checkpoint lies in; None where it lies in none."""
    if config.eval.checkpoint is None:
        return None
    path = Path(config.eval.checkpoint).resolve().parent.parent / "config.yaml"
    try:
        values = kept_config(path.parent)
        if values is None:
            return None
        return build(values, settings_of(str(values["system"]["name"])))
    except (BadInput, KeyError, TypeError) as error:
        raise BadInput(
            f"{path} is of another version ({str(error).splitlines()[0]}): evaluate with that one."
        ) from error


def _same_patients(one: Config, other: Config) -> bool:
    """Whether both runs read the same tables, or the same generated world."""
    ours, theirs = one.data, other.data
    if ours.root is not None and theirs.root is not None:
        return Path(ours.root).resolve() == Path(theirs.root).resolve()
    world = (ours.world_seed, ours.patients) == (theirs.world_seed, theirs.patients)
    return ours.root is None and theirs.root is None and world
