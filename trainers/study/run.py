"""The whole of a study: plan, play what is missing, tables. Resumable at any moment: what is done is not done again."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from ghar.errors import BadInput
from ghar.metrics.runfolder import write_whole
from ghar.trainers.runs.resume import occupied
from ghar.trainers.study.folder import StudyFolder
from ghar.trainers.study.jobs import StudyJobs, play, versions
from ghar.trainers.study.numbers import FinishedCell, Results, as_json, numbers_of
from ghar.trainers.study.outside import changed
from ghar.trainers.study.render import draw
from ghar.trainers.study.schema import Cell, Study, cells_of, first_cohort, of_tasks, read_study

RESAMPLES = 1000


def run_study(shop: StudyJobs, tell: Callable[[str], None] = print) -> dict[str, Any]:
    """Play what is missing and draw everything; returns the numbers. A cell that fails is named and left out, and
    played again by the next start."""
    with occupied(shop.folder.path):
        shop.folder.open(about(shop), _as_today, _is_more)
        write_plan(shop)
        cells = cells_of(shop.study)
        left = [cell for cell in cells if (there := shop.folder.done(cell)) is None or changed(cell, there)]
        tell(f"{shop.study.title}: {len(cells)} cells, {len(cells) - len(left)} of them finished.")
        for number, cell in enumerate(left, 1):
            began = time.monotonic()
            problem = play(shop, cell)
            if problem is not None:
                shop.folder.fail(cell, problem)
            outcome = f"left out: {problem}" if problem else f"{time.monotonic() - began:.0f} s"
            tell(f"{number}/{len(left)} {cell.id}: {outcome}")
        return conclude(shop.folder, shop.study)


def conclude(folder: StudyFolder, study: Study) -> dict[str, Any]:
    """Numbers, tables, figures and the page, of what the folder holds."""
    results = results_of(folder, study)
    numbers = numbers_of(results)
    write_whole(folder.path / "numbers.json", as_json(numbers))
    draw(folder, study, numbers)
    return numbers


def results_of(folder: StudyFolder, study: Study) -> Results:
    """What the cells of a study have left, and why others have left nothing."""
    done: dict[str, FinishedCell] = {}
    failed: dict[str, str] = {}
    for cell in cells_of(study):
        played = folder.played(cell)
        if played is None:
            failed[cell.id] = folder.reason(cell) or "not played"
        else:
            done[cell.id] = played
    resamples = int(folder.about().get("resamples", RESAMPLES))
    return Results(study, done, failed, resamples=resamples)


def about(shop: StudyJobs) -> dict[str, Any]:
    """What study.yaml holds: all that the numbers are of."""
    bootstrap = [text.partition("=")[2] for text in (*shop.scale.overrides, *shop.more) if "eval.bootstrap=" in text]
    return {
        "study": shop.study.name, "content": _plain(asdict(shop.study)), "scale": _plain(asdict(shop.scale)),
        "more": list(shop.more), "published": _plain(dict(shop.published)),
        "resamples": int(bootstrap[-1]) if bootstrap else RESAMPLES,
    }  # fmt: skip


def kept_study(folder: StudyFolder) -> Study:
    """The study that a folder is of."""
    return _study_in(folder.about())


def _as_today(kept: dict[str, Any]) -> dict[str, Any]:
    """What study.yaml says, with the fields that have come since it was written."""
    try:
        return {**kept, "content": _plain(asdict(_study_in(kept)))}
    except (BadInput, KeyError):  # it has a field that is no more, or is damaged
        return kept


def _is_more(kept: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether a study is the one that is kept with more seeds, tasks, cohorts or models from elsewhere (predictions=).

    The first cohort stays the first, since runs of other cohorts may play its weights.
    """
    try:
        part, whole = _study_in(kept), _study_in(now)
    except (BadInput, KeyError):  # a damaged file
        return False
    outside, there = _outside(whole), _outside(part)
    if not (set(part.seeds) <= set(whole.seeds) and set(part.tasks) <= set(whole.tasks)
            and part.cohorts.items() <= whole.cohorts.items() and first_cohort(part) == first_cohort(whole)
            and there.items() <= outside.items()):  # fmt: skip
        return False
    same = replace(whole, seeds=part.seeds, cohorts=part.cohorts)
    if part.tasks != whole.tasks:
        same = of_tasks(replace(same, tasks=part.tasks))
    if _without(_plain(asdict(same)), outside) != _without(_plain(asdict(part)), outside):
        return False
    published = now["published"] | kept.get("published", {}) == now["published"]
    rest = all(kept.get(key) == now[key] for key in now if key not in ("content", "published"))
    return rest and published and kept != now


def _outside(study: Study) -> dict[str, str]:
    """Runs from elsewhere, with their folders."""
    return {run.name: run.predictions for run in study.runs if run.predictions}


def _without(content: Mapping[str, Any], runs: Mapping[str, Any]) -> dict[str, Any]:
    """A study without some runs from elsewhere, whose rows have their names."""
    named = {key: [one for one in content[key] if one["name"] not in runs] for key in ("runs", "rows")}
    tables = [{**table, "rows": [row for row in table["rows"] if row not in runs]} for table in content["tables"]]
    return {**content, **named, "tables": tables}


def _study_in(kept: Mapping[str, Any]) -> Study:
    content = {key: value for key, value in kept["content"].items() if key != "name"}
    return read_study(kept["study"], content)


def write_plan(shop: StudyJobs) -> None:
    """plan.json: every cell with its command line, seeds, versions."""
    import json

    cells: Sequence[Cell] = cells_of(shop.study)
    plan = {
        "cells": {cell.id: {"overrides": shop.overrides(cell) if _ready(shop, cell) else None,
                            "rows": shop.rows(cell), "holes": shop.holes(cell)} for cell in cells},
        "seeds": list(shop.study.seeds), "versions": versions(),
    }  # fmt: skip
    write_whole(shop.folder.path / "plan.json", json.dumps(plan, indent=1) + "\n")


def _ready(shop: StudyJobs, cell: Cell) -> bool:
    return bool(shop.rows(cell))


def _plain(values: object) -> Any:
    if isinstance(values, dict):
        return {key: _plain(value) for key, value in values.items()}
    return [_plain(value) for value in values] if isinstance(values, list | tuple) else values


def folder_of(path: Path) -> StudyFolder:
    """BadInput for a folder that is no study's."""
    folder = StudyFolder(path)
    folder.about()
    if not (path / "numbers.json").is_file():
        raise BadInput(f"{path} holds no numbers.json: the study has not come to its tables yet.")
    return folder
