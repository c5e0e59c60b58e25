"""The samples that a study's cells are scored on: who they are of, in which split, and which groups they belong to."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import polars as pl

from ghar.config import Config
from ghar.data.groups import KINDS, groups_of
from ghar.data.tasks.splits import S, Splits
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.disk import whole
from ghar.envs import system as systems
from ghar.envs.records import Records
from ghar.errors import BadInput

SCHEMA = {"sample_id": pl.String, "subject_id": pl.String, "split": pl.String, "label": pl.String,
          **dict.fromkeys(KINDS, pl.String)}  # fmt: skip


def key_of(config: Config) -> str:
    """Changes with whatever changes samples or their split. Tasks that are no visits are a system's own."""
    parts: dict[str, Any] = {"data": asdict(config.data), "task": asdict(config.task)}
    parts["data"].pop("cache")
    if config.task.name not in (*VISIT_TASKS, "labels"):
        parts["system"] = asdict(config.system)  # pyright: ignore[reportArgumentType]
    text = json.dumps(parts, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def samples_frame(config: Config) -> pl.DataFrame:
    """One row a sample of any split. BadInput as the records raise it, for repeated sample ids, for a patient in two
    splits, and where no patient is left to test."""
    records = Records(config)
    rows = _of_visits(records) if config.task.name in (*VISIT_TASKS, "labels") else _of_system(records)
    frame = pl.DataFrame(rows, schema=SCHEMA, orient="row")
    if frame["sample_id"].is_duplicated().any():
        twice = frame.filter(pl.col("sample_id").is_duplicated())["sample_id"][0]
        raise BadInput(f"sample {twice} occurs twice in {config.task.name} on {config.data.name}: ids must be unique.")
    splits = frame.group_by("subject_id").agg(pl.col("split").n_unique())
    if (torn := splits.filter(pl.col("split") > 1)).height:
        raise BadInput(f"{torn.height} patients are in more than one split of {config.task.name}: split by patient.")
    if not (frame["split"] == "test").any():
        raise BadInput(f"no patient is left to test in {config.task.name} on {config.data.name}: use more patients.")
    return frame


def look_ups_needed(config: Config) -> Mapping[str, int]:
    """Sample -> look-ups that its visit needs, which a generated world alone knows; no file of samples has them, for
    models from elsewhere train on those."""
    records = Records(config)
    if config.task.name not in VISIT_TASKS or records.world is None:
        return {}
    needed = dict(records.world.truth.select("visit_id", "look_ups").iter_rows())
    parts = records.splits.train, records.splits.valid, records.splits.test
    return {sample.sample_id: needed[sample.visit_id] for part in parts for sample in part}


def labels_of(config: Config) -> tuple[str, ...]:
    """The labels of a task, in order; () where each sample has its own."""
    records = Records(config)
    of_visits = config.task.name in (*VISIT_TASKS, "labels")
    return tuple((records.task if of_visits else systems.build(records).task).labels)


def fingerprint(frame: pl.DataFrame) -> str:
    """Of all samples, their patients, labels and splits, in whatever order."""
    rows = sorted("|".join(map(str, row)) for row in frame.select("sample_id", "subject_id", "label", "split").rows())
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def _parts(config: Config, splits: Splits[S]) -> list[tuple[str, tuple[S, ...]]]:
    """The samples by split, each once: with task.max_test=0 those of validation are what is tested on."""
    valid = [] if config.task.played == "valid" else [("valid", splits.valid)]
    return [("train", splits.train), *valid, ("test", splits.test)]


def _of_visits(records: Records) -> list[Sequence[str | None]]:
    splits, labels = records.splits, records.task.labels
    every = [*splits.train, *splits.valid, *splits.test]
    groups = groups_of(records.cohort, records.tables, splits.train, every)
    return [
        (s.sample_id, str(s.subject_id), name, labels[s.label], *(groups[s.sample_id][kind] for kind in KINDS))
        for name, part in _parts(records.config, splits)
        for s in part
    ]


def _of_system(records: Records) -> list[Sequence[str | None]]:
    """Of a system's own cases (time series, questions), whose patients' groups are not looked up."""
    system = systems.build(records)
    cases = system.cases
    return [
        (case.sample_id, str(case.subject_id), name, system.in_words(case, case.label), *([None] * len(KINDS)))
        for name, part in _parts(records.config, cases)
        for case in part
    ]


def whole_parquet(frame: pl.DataFrame, path: Path) -> None:
    """Write a file that is there whole or not at all."""
    with whole(path) as half:
        frame.write_parquet(half)
