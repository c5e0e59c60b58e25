"""Weights of another run on these test patients: refused where that run has trained on some of them (GHAR, Section V-C:
a test across tasks or data sets must not meet patients of the training)."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from ghar.config import Config, DataConfig
from ghar.configure import build
from ghar.data.cohort import Cohort
from ghar.data.readers.database import is_database
from ghar.data.readers.source import origin
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.envs.records import Records
from ghar.envs.system import settings_of
from ghar.errors import BadInput
from ghar.trainers.runs.kept_config import kept_config


def check_overlap(config: Config, records: Records) -> None:
    """BadInput where eval.checkpoint comes from a run that trained on some of the test's patients.

    A checkpoint without its run's configuration, and tasks that show no visits, are not looked at. Of a run whose
    tables are not here any more, a sentence says that it is not looked at.
    """
    other = trained_with(config)
    if other is None or not {config.task.name, other.task.name} <= {*VISIT_TASKS, "labels"}:
        return
    if not _may_share(config.data, other.data):
        return
    if not _is_here(other.data):
        print(
            f"{other.run_dir} was trained on {other.data.root}, which is not here: whether test patients were in its "
            "training is not checked."
        )
        return
    earlier = Records(other)
    chosen_on = () if config.task.played == "valid" else earlier.splits.valid
    seen = {sample.subject_id for sample in (*earlier.splits.train, *chosen_on)}
    tested = {sample.subject_id for sample in records.splits.test}
    both = seen & tested
    if both and not _is_one_place(config.data, other.data):
        both = same_patients(records.source, earlier.source, both)
    if both:
        raise BadInput(
            f"{len(both)} of {len(tested)} test patients were in the training or validation of {other.run_dir}: train "
            "and evaluate with task.split_of=cohort and one task.split_seed, so that no patient is on both sides."
        )


def same_patients(one: Cohort, other: Cohort, numbers: set[int]) -> set[int]:
    """Those of the patients' `numbers` that are one patient in both cohorts: with a visit of one number that begins at
    one time. Two sources may give one number to two patients."""
    visit = ("subject_id", "visit_id", "start")
    ours, theirs = (
        cohort.visits.lazy().filter(pl.col("subject_id").is_in(numbers)).select(visit) for cohort in (one, other)
    )
    return set(ours.join(theirs, on=visit, how="semi").collect()["subject_id"])


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


def _may_share(ours: DataConfig, theirs: DataConfig) -> bool:
    """Whether two runs may have patients in common: tables of any folders, or the same generated world. Of a world that
    is generated here and a folder, where the folder holds generated patients."""
    if ours.root is not None and theirs.root is not None:
        return True
    if ours.root is None and theirs.root is None:
        return (ours.world_seed, ours.patients) == (theirs.world_seed, theirs.patients)
    return origin(ours).generated and origin(theirs).generated


def _is_one_place(ours: DataConfig, theirs: DataConfig) -> bool:
    """Whether both name one folder or database, or both generate the patients that `_may_share` has compared."""
    if ours.root is None or theirs.root is None:
        return ours.root is theirs.root
    return Path(ours.root).resolve() == Path(theirs.root).resolve()


def _is_here(data: DataConfig) -> bool:
    return data.root is None or Path(data.root).is_dir() or is_database(Path(data.root))
