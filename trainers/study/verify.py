"""Recompute every number of a study's tables from its predictions alone, and point values by scikit-learn besides."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ghar.errors import BadInput
from ghar.trainers.study.folder import StudyFolder
from ghar.trainers.study.numbers import numbers_of
from ghar.trainers.study.predictions import check, sha256
from ghar.trainers.study.render import tables_of
from ghar.trainers.study.run import folder_of, kept_study, results_of
from ghar.trainers.study.schema import Study, cells_of

CLOSE = 1e-9
BY_SKLEARN = ("accuracy", "balanced_accuracy", "macro_f1", "weighted_f1", "f1", "auroc", "auprc", "brier")


@dataclass(frozen=True)
class Verification:
    """numbers: recomputed; by_sklearn: of them by scikit-learn as well; wrong: sentences, none where all agree."""

    numbers: int
    by_sklearn: int
    largest: float
    wrong: tuple[str, ...]


def verify(path: Path) -> Verification:
    """Check sums, samples, tables, CSV and LaTeX files of a study's folder. BadInput for what is no study's folder."""
    folder = folder_of(path)
    study = kept_study(folder)
    wrong = [*_sums(folder), *_samples(folder)]
    there = json.loads((path / "numbers.json").read_text())
    results = results_of(folder, study)
    here = json.loads(json.dumps(numbers_of(results)))
    count, largest = 0, 0.0
    for place, one, two in _pairs(there, here, ""):
        if isinstance(one, float | int) and isinstance(two, float | int) and not isinstance(one, bool):
            count, apart = count + 1, abs(one - two)
            largest = max(largest, apart)
            if not apart <= CLOSE:
                wrong.append(f"{place} is {one} in numbers.json and {two} from the predictions.")
        elif one != two:
            wrong.append(f"{place} is {one!r:.60} in numbers.json and {two!r:.60} from the predictions.")
    wrong += _files(folder, study, there)
    by_sklearn = 0
    for place, cell, values in _point_values(results, there):
        by_sklearn += 1
        if not math.isclose(cell, values, abs_tol=CLOSE):
            wrong.append(f"{place} is {cell}, and {values} by scikit-learn.")
    return Verification(count, by_sklearn, largest, tuple(wrong))


def _sums(folder: StudyFolder) -> Iterator[str]:
    for cell in cells_of(kept_study(folder)):
        done = folder.run(cell) / "done.json"
        if not done.is_file():
            continue
        for name, kept in json.loads(done.read_text())["predictions"].items():
            file = folder.path / "predictions" / name
            if not file.is_file():
                yield f"{file} is gone: play cell {cell.id} again."
            elif sha256(file) != kept:
                yield f"{file} is not as cell {cell.id} left it: play the cell again."


def _samples(folder: StudyFolder) -> Iterator[str]:
    for cell in cells_of(kept_study(folder)):
        done = folder.done(cell)
        if done is None:
            continue
        samples = folder.samples(done["samples"])
        if not samples.is_file():
            yield f"{samples} is gone, so no one can tell whose predictions cell {cell.id} holds."
            continue
        for name in done["predictions"]:
            try:
                check(
                    pl.read_parquet(folder.path / "predictions" / name, glob=False),
                    pl.read_parquet(samples, glob=False),
                    name,
                )
            except BadInput as error:
                yield str(error)


def _pairs(one: Any, two: Any, place: str) -> Iterator[tuple[str, Any, Any]]:
    """Leaves of two JSON values, side by side."""
    if isinstance(one, dict) and isinstance(two, dict):
        for key in sorted(one.keys() | two.keys()):
            yield from _pairs(one.get(key), two.get(key), f"{place}/{key}" if place else key)
    elif isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        for i, (a, b) in enumerate(zip(one, two, strict=True)):
            yield from _pairs(a, b, f"{place}[{i}]")
    else:
        yield place, one, two


def _files(folder: StudyFolder, study: Study, numbers: Mapping[str, Any]) -> Iterator[str]:
    """Whether the tables as they are published say what numbers.json says, letter by letter."""
    for drawn in tables_of(folder, study, numbers):
        for end, text in drawn.texts.items():
            file = folder.path / "tables" / f"{drawn.name}{end}"
            if not file.is_file():
                yield f"{file} is gone: start the study again, which draws it."
                continue
            pairs = zip_longest(file.read_text().splitlines(), text.splitlines(), fillvalue="nothing")
            for number, (there, here) in enumerate(pairs, start=1):
                if there != here:
                    yield f"{file}, line {number} is {there:.160}, and {here:.160} from numbers.json."
                    break


def _point_values(results: Any, numbers: Mapping[str, Any]) -> Iterator[tuple[str, float, float]]:
    """(place, the number of one seed, the same by scikit-learn) of every place that scikit-learn knows."""
    for name, table_numbers in numbers.items():
        by = next(table.by for table in results.study.tables if table.name == table_numbers["table"])
        for row, columns in table_numbers["cells"].items():
            for column, parts in columns.items():
                task, metric = column.split("/", 1)
                if metric not in BY_SKLEARN:
                    continue
                for part, cell in parts.items():
                    for seed, value in zip(cell.get("seeds", ()), cell.get("each", ()), strict=True):
                        run = results.study.row(row).run
                        played = results.done.get(f"{run}-{table_numbers['cohort']}-{task}-seed{seed}")
                        if played is None:
                            continue  # `_sums` says what became of it
                        frame = results.frame(played.rows[row])
                        frame = frame if by is None else frame.filter(pl.col(by) == part)
                        place = f"{name}/{row}/{column}/{part}/seed{seed}"
                        yield place, value, by_sklearn(metric, frame, played.labels)


def by_sklearn(metric: str, frame: pl.DataFrame, labels: tuple[str, ...]) -> float:
    """A number as scikit-learn computes it, unreadable answers as a class of their own that no sample is of."""
    from sklearn import metrics

    truth, guess = frame["label"].to_list(), frame["prediction"].fill_null("(none)").to_list()
    if metric == "accuracy":
        return float(metrics.accuracy_score(truth, guess))
    if metric == "balanced_accuracy":
        return float(metrics.recall_score(truth, guess, labels=sorted(set(truth)), average="macro"))
    if metric == "macro_f1" or (metric == "f1" and len(labels) != 2):
        seen = sorted({*truth, *guess} - {"(none)"})
        return float(metrics.f1_score(truth, guess, labels=seen, average="macro"))
    if metric == "weighted_f1":
        return float(metrics.f1_score(truth, guess, labels=sorted(set(truth)), average="weighted"))
    if metric == "f1":
        return float(metrics.f1_score(truth, guess, labels=[labels[1]], average="macro"))
    if metric == "brier":  # a sample without probabilities says nothing about its confidence
        frame = frame.filter(pl.col("probabilities").is_not_null())
        truth = frame["label"].to_list()
    even = [1 / len(labels)] * len(labels)  # how a sample without probabilities is ranked
    shares = np.array([even if row is None else row for row in frame["probabilities"].to_list()])
    one_hot = np.array([[label == other for other in labels] for label in truth]).astype(int)
    if metric == "brier":
        return float(((shares - one_hot) ** 2).sum(axis=1).mean() / (2 if len(labels) == 2 else 1))
    score = metrics.roc_auc_score if metric == "auroc" else metrics.average_precision_score
    of = [1] if len(labels) == 2 else [i for i in range(len(labels)) if 0 < one_hot[:, i].sum() < len(truth)]
    return float(np.mean([score(one_hot[:, i], shares[:, i]) for i in of]))
