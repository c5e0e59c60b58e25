"""Whether a cell was made as the paper made the numbers that are printed beside it, and if not, in what they differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import polars as pl

from ghar.config import Config
from ghar.data.tasks.prevalence import beyond_the_paper
from ghar.sections import leaves
from ghar.trainers.runs.resume import plain
from ghar.trainers.study.schema import Cell, Study, StudyRow

CLOSED = "@"  # model@http://host/v1: the model stands before the address
FEWEST, MOST = 0.5, 2.0  # of the paper's patients, whose exact draw no paper gives


def paper_keys(study: Study, cell: Cell, row: StudyRow) -> dict[str, Any]:
    """Key -> the value under which the paper has this row: the study's, its part's, its run's and the row's own."""
    paper = study.paper
    if paper is None:
        return {}
    keys = {"data.name": cell.cohort, **paper.keys}
    for part in paper.where:
        keys |= {**part.keys, **part.closed} if part.holds(cell) else {}
    return {**keys, **cell.run.paper, **row.paper}


def differences(
    study: Study, cell: Cell, row: StudyRow, config: Config, samples: pl.DataFrame, labels: Sequence[str]
) -> list[str]:
    """In what a cell differs from the paper, a phrase each; empty where a published number may stand beside it.

    samples: of the cell. The paper's tables must allow its patients, and the share of positives (the second of two
    labels) among its test samples, which those tables are of.
    """
    return [*key_differences(study, cell, row, config), *_of_samples(study, cell, config, samples, labels)]


def key_differences(study: Study, cell: Cell, row: StudyRow, config: Config) -> list[str]:
    """The keys alone, for cells that are composed and not played."""
    here, of_data = leaves(plain(config)), ("protocol.", "data.", "task.")  # all that a model from elsewhere shares
    return [
        f"{key} is {_format_value(here.get(key))}, the paper's {_format_value(theirs)}"
        for key, theirs in paper_keys(study, cell, row).items()
        if (cell.run.predictions is None or key.startswith(of_data)) and not _same(here.get(key), theirs)
    ]


def _of_samples(
    study: Study, cell: Cell, config: Config, samples: pl.DataFrame, labels: Sequence[str]
) -> Iterator[str]:
    theirs = study.paper.patients_of(cell) if study.paper is not None else None
    ours = samples["subject_id"].n_unique()
    if theirs is not None and not FEWEST * theirs <= ours <= MOST * theirs:
        yield f"{ours:,} patients, the paper has {theirs:,}"
    if len(labels) == 2:
        tested = samples.filter(pl.col("split") == "test")["label"]
        positive = [int(label == labels[1]) for label in tested]
        if (far := beyond_the_paper(config.protocol.name, config.task.name, config.data.name, positive)) is not None:
            yield far


def _same(ours: object, theirs: object) -> bool:
    if isinstance(ours, str) and isinstance(theirs, str):
        return ours.partition(CLOSED)[0] == theirs
    return ours == theirs and isinstance(ours, bool) == isinstance(theirs, bool)


def _format_value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else "not set" if value is None else str(value)
