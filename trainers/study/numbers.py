"""The numbers of a study's tables, from its predictions alone: means over seeds with intervals over seeds and patients,
paired tests against the main row with Holm's correction, and a named hole where there is no number."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ghar.errors import BadInput
from ghar.metrics.bootstrap import percentiles
from ghar.metrics.calibration import ECE
from ghar.metrics.seeds import draw_over_seeds, drawn_over_seeds
from ghar.metrics.significance import holm
from ghar.trainers.study.metrics import CALIBRATION, MODEL_METRICS, bounds_of, number_of
from ghar.trainers.study.schema import Cell, Study, StudyRow, StudyTable, abroad, first_cohort

WHOLE = "all"  # the part of a table that is not parted
NOT_PLAYED = "not played"  # a hole


@dataclass(frozen=True)
class FinishedCell:
    """What a finished cell left. rows: name -> predictions file; labels: of its task; holes: row -> why it has none;
    models: row -> the numbers of the model behind it (`metrics.MODEL_METRICS`)."""

    cell: str
    labels: tuple[str, ...]
    rows: Mapping[str, Path]
    holes: Mapping[str, str]
    models: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class Results:
    """All that tables are made from. done: cell -> what it left; failed: cell -> why there is nothing."""

    study: Study
    done: Mapping[str, FinishedCell]
    failed: Mapping[str, str]
    seed: int = 0
    resamples: int = 1000

    @cached_property
    def _frames(self) -> dict[Path, pl.DataFrame]:
        return {}

    def frame(self, path: Path) -> pl.DataFrame:
        if path not in self._frames:
            self._frames[path] = pl.read_parquet(path, glob=False)
        return self._frames[path]

    def cells(self, row: StudyRow, cohort: str, task: str) -> list[Cell]:
        run = self.study.run(row.run)
        return [Cell(run, cohort, task, seed) for seed in self.study.seeds]


@dataclass(frozen=True)
class SeedNumbers:
    """Of one place of a table: for each seed the rows and the number they give."""

    seeds: tuple[int, ...]
    frames: tuple[pl.DataFrame, ...]
    labels: tuple[str, ...]
    missing: tuple[str, ...]  # why seeds are missing


def numbers_of(results: Results) -> dict[str, Any]:
    """Table name and cohort -> its numbers, as numbers.json holds them."""
    tables = {}
    for table in results.study.tables:
        for cohort in results.study.cohorts:
            if not table.cohorts or cohort in table.cohorts:
                tables[f"{table.name}-{cohort}"] = table_of(results, table, cohort)
    return tables


def table_of(results: Results, table: StudyTable, cohort: str) -> dict[str, Any]:
    """One table of one cohort. cells: row -> column -> part -> a number or a hole; tests likewise, against the main
    row, with p as it is and after Holm's correction for all tests of the table."""
    study = results.study
    rows = [study.row(name) for name in table.rows] or list(study.rows)
    tasks = table.tasks or study.tasks
    columns = [(task, metric) for task in tasks for metric in table.metrics]
    main = table.main or (study.main if study.main in {row.name for row in rows} else rows[0].name)
    cells: dict[str, Any] = {}
    tests: dict[str, Any] = {}
    for task, metric in columns:
        taken = {row.name: _taken(results, row, cohort, task) for row in rows}
        parts = _parts(table, taken.values())
        for row in rows:
            place = cells.setdefault(row.name, {}).setdefault(_column(task, metric), {})
            for part in parts:
                place[part] = _estimate_number(results, taken[row.name], metric, table.by, part)
            if row.name == main or metric in MODEL_METRICS:
                continue
            for part in parts:
                test = _test(results, taken[main], taken[row.name], metric, table.by, part)
                if test is not None:
                    tests.setdefault(row.name, {}).setdefault(_column(task, metric), {})[part] = test
    _correct(tests)
    gaps = _gaps(results, table, cohort, rows, columns) if table.by else {}
    return {
        "table": table.name, "cohort": cohort, "main": main, "columns": [_column(*c) for c in columns],
        "cells": cells, "tests": tests, "gaps": gaps,
    }  # fmt: skip


def _column(task: str, metric: str) -> str:
    return f"{task}/{metric}"


def _taken(results: Results, row: StudyRow, cohort: str, task: str) -> SeedNumbers:
    """What the seeds of a row have left on a task."""
    seeds, frames, labels, missing = [], [], (), []
    run = results.study.run(row.run)
    if run.tasks and task not in run.tasks:
        return SeedNumbers((), (), (), ("not put to this task",))
    if abroad(run) and cohort == first_cohort(results.study):
        return SeedNumbers((), (), (), ("its weights are of this cohort: it needs a second one",))
    for cell in results.cells(row, cohort, task):
        played = results.done.get(cell.id)
        if played is None:
            missing.append(results.failed.get(cell.id, NOT_PLAYED))
        elif row.name not in played.rows:
            missing.append(played.holes.get(row.name, NOT_PLAYED))
        else:
            seeds.append(cell.seed)
            own = {name: pl.lit(value, pl.Float64) for name, value in played.models.get(row.name, {}).items()}
            frames.append(results.frame(played.rows[row.name]).with_columns(**own))
            labels = played.labels
    return SeedNumbers(tuple(seeds), tuple(frames), tuple(labels), tuple(dict.fromkeys(missing)))


def _parts(table: StudyTable, taken: Any) -> list[str]:
    """Names of the parts of a table, in order of their names."""
    if table.by is None:
        return [WHOLE]
    values = {v for runs in taken for frame in runs.frames for v in frame[table.by].drop_nulls().to_list()}
    return sorted(values) or [WHOLE]


def _of_part(frame: pl.DataFrame, by: str | None, part: str) -> pl.DataFrame:
    return frame if by is None else frame.filter(pl.col(by) == part)


def _numbers(
    results: Results, runs: SeedNumbers, metric: str, by: str | None, part: str
) -> tuple[list[Any], list[list[str]]]:
    """For each seed the number as a function of weights, and the patients. BadInput, a reason, where there is none."""
    if not runs.frames:
        raise BadInput("; ".join(runs.missing) or NOT_PLAYED)
    frames = [_of_part(frame, by, part) for frame in runs.frames]
    who = [frame["subject_id"].to_list() for frame in frames]
    fewest = min(len(set(own)) for own in who)
    if fewest == 0:
        raise BadInput("no patients in this group" if by else "no patients")
    if by is not None and fewest < results.study.smallest:
        raise BadInput(f"fewer than {results.study.smallest} patients: not shown")
    return [number_of(metric, frame, runs.labels) for frame in frames], who


def _estimate_number(results: Results, runs: SeedNumbers, metric: str, by: str | None, part: str) -> dict[str, Any]:
    try:
        numbers, who = _numbers(results, runs, metric, by, part)
    except BadInput as error:
        return {"hole": str(error)}
    value, drawn = drawn_over_seeds(numbers, who, seed=results.seed, resamples=results.resamples)
    if np.isnan(value):
        return {"hole": "undefined on these samples"}
    low, high = np.clip(percentiles(value, drawn, centred=metric == ECE), *bounds_of(metric))
    each = [float(of(np.ones((1, len(own))))[0]) for of, own in zip(numbers, who, strict=True)]
    return {
        "value": value, "low": float(low), "high": float(high), "each": each, "seeds": list(runs.seeds),
        "patients": len({one for own in who for one in own}), "samples": max(len(own) for own in who),
        **({"missing": list(runs.missing)} if runs.missing else {}),
    }  # fmt: skip


def _test(
    results: Results, main: SeedNumbers, other: SeedNumbers, metric: str, by: str | None, part: str
) -> dict[str, Any] | None:
    """Main minus other on the samples of the seeds that both have; None where one of them has no number."""
    seeds = [seed for seed in main.seeds if seed in other.seeds]
    a, b = _only(main, seeds), _only(other, seeds)
    if not seeds:
        return None
    b = SeedNumbers(b.seeds, tuple(_as(two, one) for one, two in zip(a.frames, b.frames, strict=True)), b.labels, ())
    if metric in CALIBRATION:
        a, b = _both_probable(a, b)
    try:
        first, who = _numbers(results, a, metric, by, part)
        second, same = _numbers(results, b, metric, by, part)
    except BadInput:
        return None
    if who != same:
        return None  # of other samples: a system that has a sample set of its own
    pairs = zip(first, second, strict=True)
    apart = [lambda weights, one=one, two=two: one(weights) - two(weights) for one, two in pairs]
    draws = draw_over_seeds(apart, who, seed=results.seed, resamples=results.resamples)
    value, drawn = draws.value, draws.drawn
    if np.isnan(value) or np.isnan(drawn).all():
        return None
    least, most = bounds_of(metric)
    low, high = np.clip(percentiles(value, drawn), least - most, most - least)
    return {"difference": value, "low": float(low), "high": float(high), "p": draws.p(), "seeds": seeds}


def _only(runs: SeedNumbers, seeds: Sequence[int]) -> SeedNumbers:
    kept = [i for i, seed in enumerate(runs.seeds) if seed in seeds]
    return SeedNumbers(tuple(seeds), tuple(runs.frames[i] for i in kept), runs.labels, ())


def _as(frame: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """The rows in the order of another frame's samples; as they are where they are of other samples."""
    if set(frame["sample_id"]) != set(other["sample_id"]):
        return frame
    return other.select("sample_id").join(frame, on="sample_id", how="left", maintain_order="left")


def _both_probable(a: SeedNumbers, b: SeedNumbers) -> tuple[SeedNumbers, SeedNumbers]:
    """The samples for which both have probabilities: who is silent where it is hard is not compared with who is not."""

    def own(runs: SeedNumbers, other: SeedNumbers) -> SeedNumbers:
        silent = [frame.filter(pl.col("probabilities").is_null()).select("sample_id") for frame in other.frames]
        pairs = zip(runs.frames, silent, strict=True)
        speaks = pl.col("probabilities").is_not_null()
        kept = (
            frame.filter(speaks).join(those, on="sample_id", how="anti", maintain_order="left")
            for frame, those in pairs
        )
        return replace(runs, frames=tuple(kept))

    return own(a, b), own(b, a)


def _correct(tests: Mapping[str, Any]) -> None:
    """Write Holm's p beside each p: of all tests of a table."""
    every = [test for row in tests.values() for column in row.values() for test in column.values()]
    for test, adjusted in zip(every, holm([test["p"] for test in every]), strict=True):
        test["holm"] = adjusted


def _gaps(
    results: Results, table: StudyTable, cohort: str, rows: Sequence[StudyRow], columns: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Row -> column -> the largest less the smallest group's number, of the groups that are shown, with its interval.
    Percentiles of a range lie above it where groups are alike: the interval is moved by as much as the resamples lie
    above the value, as for ECE, and cut at 0."""
    gaps: dict[str, Any] = {}
    for row in rows:
        for task, metric in columns:
            runs = _taken(results, row, cohort, task)
            groups: list[tuple[list[Any], str]] = []
            for part in _parts(table, [runs]):
                try:
                    _numbers(results, runs, metric, table.by, part)
                except BadInput:
                    continue
                own = [_within(frame, table.by, part, metric, runs.labels) for frame in runs.frames]
                values = [of(np.ones((1, len(frame))))[0] for of, frame in zip(own, runs.frames, strict=True)]
                if not np.isnan(values).any():
                    groups.append((own, part))
            if len(groups) < 2:
                continue
            who = [frame["subject_id"].to_list() for frame in runs.frames]
            ranges = [_range([own[i] for own, _ in groups]) for i in range(len(runs.frames))]
            value, drawn = drawn_over_seeds(ranges, who, seed=results.seed, resamples=results.resamples)
            low, high = percentiles(value, drawn, centred=True)
            gaps.setdefault(row.name, {})[_column(task, metric)] = {
                "value": value, "low": max(0.0, low), "high": high,
                "groups": [part for _, part in groups],
            }  # fmt: skip
    return gaps


def _within(frame: pl.DataFrame, by: str | None, part: str, metric: str, labels: Sequence[str]) -> Any:
    """The number of a part, as a function of weights of all rows."""
    assert by is not None
    mask = (frame[by] == part).fill_null(False).to_numpy()
    inner = number_of(metric, frame.filter(pl.Series(mask)), labels)
    return lambda weights: inner(weights[:, mask])


def _range(numbers: Sequence[Any]) -> Any:
    def widest(weights: np.ndarray) -> np.ndarray:
        values = np.stack([of(weights) for of in numbers])
        return values.max(axis=0) - values.min(axis=0)

    return widest


def as_json(numbers: Mapping[str, Any]) -> str:
    return json.dumps(numbers, indent=1, sort_keys=False, allow_nan=False) + "\n"
