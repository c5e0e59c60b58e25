"""Predictions in the schema of meds-evaluation, of ours and of any other model, which so enters our tables.

A file has subject_id, prediction_time, boolean_value (the truth), predicted_boolean_value and
predicted_boolean_probability; the schema knows two answers only. `write_predictions` leaves predictions/VARIANT.parquet
and predictions/subject_splits.parquet (train, tuning, held_out) in a run's folder. meds-evaluation reads no gaps: a
sample without a readable answer gets the usual answer of the training samples, which predictions/unanswered.json
counts, and one without a probability, where others have some, their share of positive ones. Facts: schema.py and
evaluate.py of meds-evaluation 0.0.6.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import polars as pl

from ghar import ledger
from ghar.config import Config
from ghar.data.cohort import Sample
from ghar.data.readers.meds_files import TIME, scan, schema_of
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.disk import whole
from ghar.envs.records import Records
from ghar.envs.system import System, Variant
from ghar.episode import Episode, Prediction
from ghar.errors import BadInput
from ghar.metrics.runfolder import write_whole
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rows import Row, episode_row

KEYS = {"subject_id": pl.Int64(), "prediction_time": TIME, "boolean_value": pl.Boolean()}
PREDICTED = {"predicted_boolean_value": pl.Boolean(), "predicted_boolean_probability": pl.Float32()}
PREDICTIONS = "predictions"  # in a run folder
NAME = "predictions"  # the one variant of a model from outside
MORE_ANSWERS = ("los", "los_24h")  # tasks of visits with more than two
PAGE = f"see docs/comparing.md for the columns: {', '.join((*KEYS, *PREDICTED))}."


@dataclass(frozen=True)
class ExternalModel:
    """Another model: its name in the tables, and the file of its predictions."""

    name: str
    path: Path


def samples_of(records: Records) -> Splits[Sample] | None:
    """The samples of a task of visits, which tell when each was predicted; None for other tasks."""
    return records.splits if records.config.task.name in (*VISIT_TASKS, "labels") else None


def write_predictions(
    folder: Path, samples: Splits[Sample] | None, labels: Sequence[str], rows: Mapping[str, Sequence[Row]]
) -> list[Path]:
    """Write the rows of each variant, and the split; nothing where the task has not two answers, or no times.

    rows: of test samples, by variant. Returns the files of predictions.
    """
    if samples is None or len(labels) != 2:
        return []
    place = folder / PREDICTIONS
    place.mkdir(parents=True, exist_ok=True)
    base = sum(sample.label for sample in samples.train) / len(samples.train)
    by_id = {sample.sample_id: sample for sample in samples.test}
    written, unanswered = [], {}
    for name, variant_rows in rows.items():
        test_rows = [row for row in variant_rows if row["sample_id"] in by_id]
        unanswered[name] = sum(row["prediction"] not in labels for row in test_rows)
        written.append(place / f"{name}.parquet")
        _write_table(folder, written[-1], _frame(test_rows, by_id, labels, base))
    parts = {"train": samples.train, "held_out": samples.test, "tuning": samples.valid}  # may be the same patients
    split = {sample.subject_id: part for part, own in parts.items() for sample in own}
    people = {"subject_id": sorted(split), "split": [split[subject] for subject in sorted(split)]}
    table = pl.DataFrame(people, {"subject_id": pl.Int64, "split": pl.String})
    _write_table(folder, place / "subject_splits.parquet", table)
    write_whole(place / "unanswered.json", json.dumps(unanswered, indent=1))
    return written


def _write_table(folder: Path, path: Path, table: pl.DataFrame) -> None:
    """Write a table whole, once the ledger of the run has its sum."""
    with whole(path) as half:
        table.write_parquet(half)
        ledger.append(folder, ledger.entry(str(path.relative_to(folder)), half))


def _frame(rows: Iterable[Row], by_id: Mapping[str, Sample], labels: Sequence[str], base: float) -> pl.DataFrame:
    table = []
    for row in rows:
        sample, answered = by_id[row["sample_id"]], row["prediction"] in labels
        value = row["prediction"] == labels[1] if answered else base >= 0.5
        shares = row["label_probabilities"]
        chance = None if shares is None else shares[1]
        table.append((sample.subject_id, sample.prediction_time, sample.label == 1, value, chance))
    frame = pl.DataFrame(table, {**KEYS, **PREDICTED}, orient="row")
    chance = frame["predicted_boolean_probability"]
    return frame.with_columns(chance.fill_null(base)) if chance.null_count() < len(chance) else frame


def read_predictions(path: Path) -> pl.DataFrame:
    """The columns of a file of predictions, with a value for each: a probability of 0.5 or more is true.

    Raises BadInput for an absent file or column, a row without patient, time or prediction, and repeated samples.
    """
    if not path.is_file():
        raise BadInput(f"There is no file of predictions {path}: correct the path; {PAGE}")
    run = path.parent.parent
    if path.parent.name == PREDICTIONS and (run / ledger.LEDGER).is_file():
        ledger.check(run, str(path.relative_to(run)))
    columns = scan(path, KEYS, PREDICTED, advice=PAGE)
    if not PREDICTED.keys() & set(schema_of(path)):
        raise BadInput(f"{path} has neither of {', '.join(PREDICTED)}: {PAGE}")
    frame = columns.collect()
    chance = pl.col("predicted_boolean_probability")
    frame = frame.with_columns(pl.col("predicted_boolean_value").fill_null(chance >= 0.5))
    bad = frame.filter(pl.any_horizontal(pl.col(*KEYS, "predicted_boolean_value").is_null())
                       | ~chance.is_between(0, 1).fill_null(True))  # fmt: skip
    if bad.height:
        raise BadInput(f"{path} has {bad.height} rows without patient, time, truth or prediction: correct the file.")
    if frame.select("subject_id", "prediction_time").is_duplicated().any():
        raise BadInput(f"{path} has several predictions of one patient at one time: keep one of each.")
    return frame


def check_outside(outside: ExternalModel, config: Config) -> None:
    """BadInput, before any table is read, for a task without such files, and as `read_predictions`. The answers
    of a label file are left to `outside_rows`."""
    task = config.task.name
    if task not in (*VISIT_TASKS, "labels") or task in MORE_ANSWERS:
        raise BadInput(_no_files(outside, task))
    read_predictions(outside.path)


def _no_files(outside: ExternalModel, task: str) -> str:
    return (
        f"predictions={outside.name}:{outside.path} cannot be compared on task={task}: only tasks of visits with two "
        "answers have such files (docs/comparing.md)."
    )


def outside_rows(
    outside: ExternalModel, system: System[Any], samples: Splits[Sample] | None
) -> tuple[System[Any], list[Row]]:
    """The predictions of another model as rows of the test samples, and a system by its name that they are of.

    Samples that the file has not are left out. Raises BadInput where the task has not two answers, where no test
    sample is in the file, and where its truth is not ours.
    """
    if samples is None or len(system.task.labels) != 2:
        raise BadInput(_no_files(outside, system.task.name))
    frame = read_predictions(outside.path)
    predictions = {(subject, at): row for subject, at, *row in frame.select(*KEYS, *PREDICTED).iter_rows()}
    cases: dict[str, Any] = {case.sample_id: case for case in system.cases.test}
    named = Variant(NAME, str(outside.path.name), who="")
    report = replace(system.report, listed=None, numbers=None, answer=None, row=lambda episode, case, variant: {})
    own = replace(
        system, name=outside.name, variants={NAME: named}, main=NAME, report=report,
        truth=replace(system.truth, needs=lambda case: None),
    )  # fmt: skip
    rows, wrong = [], 0
    for sample in samples.test:
        key: tuple[int, datetime] = sample.subject_id, sample.prediction_time
        if key in predictions and sample.sample_id in cases:
            truth, value, chance = predictions[key]
            wrong += truth != (sample.label == 1)
            shares = None if chance is None else (1 - chance, chance)
            episode = Episode(sample.sample_id, 0, Prediction(int(value), probabilities=shares))
            rows.append(episode_row(own, named, cases[sample.sample_id], episode, NOTHING, "test"))
    if not rows:
        raise BadInput(f"{outside.path} has no prediction of a test sample: are they of this task, split and cohort?")
    if wrong:
        raise BadInput(f"{outside.path} has another truth in {wrong} of {len(rows)} samples: it is of another task.")
    return own, rows


NOTHING = EpisodeReward({}, 0.0, (), "shared")
