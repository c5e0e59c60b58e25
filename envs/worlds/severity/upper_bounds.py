"""How well the best possible predictor does in the demo world: without looking anything up, and with it.

All numbers are exact expectations under story.py, for predictors that see the codes of the visit itself
(leakage=paper) and always give the most probable label.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ghar.envs.worlds.severity import story
from ghar.errors import BadInput

TASKS = ("los", "read", "dec")
FURTHER = ("past", "asks_grade")  # columns of truth.parquet with severities that no list of entities holds
_SLICE = 50_000  # visits whose laws are in memory at once


@dataclass(frozen=True)
class Ceilings:
    """Expected accuracy over `visits` visits of a predictor that knows the severities of the common entities and

    parametric: of the rare ones only how often each severity occurs among rare conditions and rare drugs.
    retrieval: those of the rare ones too.
    memory: of the rare ones what the labels of the `seen` visits tell (NaN when none were named). This, not
        `parametric`, bounds a model trained on them that looks nothing up.
    """

    task: str
    visits: int
    parametric: float
    retrieval: float
    memory: float = float("nan")


def world_ceilings(
    truth: pl.DataFrame, rare_severity: np.ndarray, task: str, seen: pl.DataFrame | None = None
) -> Ceilings:
    """Ceilings of `task` over the visits in `truth` (columns of truth.parquet).

    rare_severity: int [rare conditions + rare drugs, as many of each], true severities in truth.parquet's numbering.
    seen: visits whose outcomes in this task a learner may remember.
    Raises BadInput for an unknown task, or a visit for which the task has no label.
    """
    nothing, all_of_it = (np.full((truth.height, 2 + len(FURTHER)), value) for value in (False, True))
    parametric = knowing(truth, rare_severity, task, nothing)
    retrieval = knowing(truth, rare_severity, task, all_of_it)
    memory = float("nan")
    if seen is not None:
        remembered = remembered_cdf(seen.filter(pl.col(task).is_not_null()), rare_severity, task)
        memory = _mean_hits(
            truth, task, lambda part, _: _product_cdf(remembered, rare_numbers(part)) * further_cdf(part, None)
        )
    return Ceilings(task, truth.height, parametric, retrieval, memory)


def knowing(
    truth: pl.DataFrame, rare_severity: np.ndarray, task: str, coverage: np.ndarray, common: np.ndarray | None = None
) -> float:
    """Expected accuracy of a predictor that knows, beside the common entities, these severities of each visit.

    coverage: bool [visits, 2 or 4], of its rare condition, its rare drug, its past and its syndrome (the last two are
    unknown where they are left out). What it does not know of an entity is all but how often each severity occurs in
    its kind. common: float64 [10], P(common acuity <= m), for a predictor that does not know the common entities
    either. Raises BadInput as `world_ceilings` does.
    """
    exact = (rare_severity[:, None] <= np.arange(story.GRADES)).astype(float)
    prior = np.repeat([half.mean(axis=0) for half in np.split(exact, 2)], len(exact) // 2, axis=0)

    def law(part: pl.DataFrame, rows: slice) -> np.ndarray:
        numbers = rare_numbers(part)
        cdf = np.ones((len(numbers), story.GRADES))
        for kind in range(2):
            has, knows = numbers[:, kind] >= 0, coverage[rows, kind]
            own = np.where(knows[:, None], exact[numbers[:, kind]], prior[numbers[:, kind]])
            cdf *= np.where(has[:, None], own, 1.0)
        return cdf * further_cdf(part, coverage[rows, 2:] if coverage.shape[1] > 2 else None)

    return _mean_hits(truth, task, law, common)


def further_cdf(part: pl.DataFrame, coverage: np.ndarray | None) -> np.ndarray:
    """P(highest severity from further sources <= m), float64 [n, 10]; coverage: bool [n, 2], None for none of them.
    What is not known is uniform over 1..9 (envs/worlds/severity/sources.py)."""
    cdf, grades = np.ones((part.height, story.GRADES)), np.arange(story.GRADES)
    for i, column in enumerate(name for name in FURTHER if name in part.columns):
        severity = part[column].fill_null(0).to_numpy()
        exact = (severity[:, None] <= grades).astype(float)
        unsure = np.where(severity[:, None] > 0, grades / (story.GRADES - 1), 1.0)
        cdf *= unsure if coverage is None else np.where(coverage[:, i, None], exact, unsure)
    return cdf


def _mean_hits(
    truth: pl.DataFrame,
    task: str,
    rare_cdf: Callable[[pl.DataFrame, slice], np.ndarray],
    common: np.ndarray | None = None,
) -> float:
    """Share of the visits that the most probable label is expected to get right, slice by slice."""
    if task not in TASKS:
        raise BadInput(f"The demo world has no task {task!r}; it knows {', '.join(TASKS)}.")
    if truth.is_empty():
        raise BadInput(f"No visits to compute the {task} ceilings of; name at least one visit id.")
    unlabelled = truth.filter(pl.col(task).is_null())
    if not unlabelled.is_empty():
        raise BadInput(
            f"Visit {unlabelled['visit_id'][0]} has no {task} label (the patient died or never came back); "
            f"ask only for visits of that task."
        )
    hits, first = 0.0, 0
    for part in truth.iter_slices(_SLICE):
        law = rare_cdf(part, slice(first, first + part.height))
        if common is None:
            acuity = acuity_law(part["common_acuity"].to_numpy(), law)
        else:
            acuity = np.diff(common * law, axis=1, prepend=0.0)
        hits += float(label_law(acuity, task).max(axis=1).sum())
        first += part.height
    return hits / truth.height


def rare_numbers(truth: pl.DataFrame) -> np.ndarray:
    """Rare entities of each visit, int64 [n, 2], -1 where none."""
    return truth.select("rare_1", "rare_2").fill_null(-1).to_numpy().astype(np.int64)


def acuity_law(common: np.ndarray, rare_cdf: np.ndarray) -> np.ndarray:
    """P(acuity), float64 [n, 10]: the maximum of the known common acuity and the rare severities."""
    cdf = np.where(np.arange(story.GRADES) >= common[:, None], rare_cdf, 0.0)
    return np.diff(cdf, axis=1, prepend=0.0)


def label_law(acuity: np.ndarray, task: str) -> np.ndarray:
    """P(label), float64 [n, labels], from P(acuity). For `read` the patient is known to have survived."""
    if task == "los":
        return acuity @ story.los_matrix()
    if task == "dec":
        return acuity @ _binary(story.death_probability())
    alive = acuity * (1 - story.death_probability())
    return alive / alive.sum(axis=1, keepdims=True) @ _binary(story.readmission_probability())


def remembered_cdf(seen: pl.DataFrame, rare_severity: np.ndarray, task: str) -> np.ndarray:
    """P(severity <= m | labels of the seen visits with exactly one rare entity), float64 [rare entities, 10].

    Starts from how often each severity occurs in the kind. Visits with two rare entities (about two in nine of those
    that have any), or with one of a further source, are left out: they would tie the entities together and say little
    more.
    """
    numbers = rare_numbers(seen)
    alone = pl.all_horizontal(pl.lit(True), *(pl.col(name).is_null() for name in FURTHER if name in seen.columns))
    single = seen.filter(pl.Series((numbers >= 0).sum(axis=1) == 1) & alone)
    severity = np.arange(story.GRADES)
    acuity = np.maximum(single["common_acuity"].to_numpy()[:, None], severity)
    likelihood = _label_likelihood(task)[acuity, single[task].to_numpy()[:, None]]
    logs = np.concatenate([np.tile(_log_frequency(part), (len(part), 1)) for part in np.split(rare_severity, 2)])
    np.add.at(logs, rare_numbers(single).max(axis=1), np.log(np.maximum(likelihood, 1e-30)))  # no -inf minus -inf
    weights = np.exp(logs - logs.max(axis=1, keepdims=True))
    return (weights / weights.sum(axis=1, keepdims=True)).cumsum(axis=1)


def _label_likelihood(task: str) -> np.ndarray:
    """P(label, and being in the task | acuity), float64 [acuity, label]."""
    if task == "los":
        return story.los_matrix()
    if task == "dec":
        return _binary(story.death_probability())
    return _binary(story.readmission_probability()) * (1 - story.death_probability())[:, None]


def _log_frequency(severity: np.ndarray) -> np.ndarray:
    counts = np.bincount(severity, minlength=story.GRADES)
    return np.where(counts > 0, np.log(np.maximum(counts, 1) / len(severity)), -np.inf)


def _product_cdf(entity_cdf: np.ndarray, rare: np.ndarray) -> np.ndarray:
    """P(highest rare severity <= m) of each visit from that of its entities, taken as independent."""
    certain = np.vstack([entity_cdf, np.ones(story.GRADES)])  # -1, no entity, picks the last row
    return certain[rare].prod(axis=1)


def _binary(positive: np.ndarray) -> np.ndarray:
    return np.stack([1 - positive, positive], axis=1)


def all_ceilings(truth: pl.DataFrame, rare_severity: np.ndarray) -> Sequence[Ceilings]:
    """Ceilings of each task over all visits that have a label in it."""
    return [world_ceilings(truth.filter(pl.col(task).is_not_null()), rare_severity, task) for task in TASKS]
