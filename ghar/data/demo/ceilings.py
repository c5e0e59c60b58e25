"""How well the best possible predictor does in the demo world: without looking anything up, and with it.

All numbers are exact expectations under story.py, for predictors that see the codes of the visit itself
(leakage=paper) and always give the most probable label.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ghar.data.demo import story
from ghar.errors import BadInput

TASKS = ("los", "read", "dec")
_RARE_CONDITIONS = story.N_RARE_CONDITIONS  # rare entities are numbered conditions first, then drugs
_SLICE = 50_000  # visits whose laws are in memory at once


@dataclass(frozen=True)
class Ceilings:
    """Expected accuracy over `visits` visits of a predictor that knows the severities of the common entities and

    parametric: of the rare ones only how often each severity occurs among rare conditions and rare drugs.
    retrieval: those of the rare ones too.
    memory: of the rare ones what the labels of the `seen` visits tell (NaN when none were named). This, not
        `parametric`, bounds a model trained on them that looks nothing up: with perfect memory a few sightings of each
        rare entity nearly suffice (2,000 patients: LOS 0.92).
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

    rare_severity: int [rare conditions + rare drugs], true severities in the vocabulary's order.
    seen: visits whose outcomes in this task a learner may remember.
    Raises BadInput for an unknown task, or a visit for which the task has no label.
    """
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
    remembered = None if seen is None else remembered_cdf(seen.filter(pl.col(task).is_not_null()), rare_severity, task)
    parametric, retrieval, memory = 0.0, 0.0, 0.0
    for part in truth.iter_slices(_SLICE):
        common, rare = part["common_acuity"].to_numpy(), rare_numbers(part)
        parametric += _expected_hits(acuity_law(common, prior_cdf(rare_severity, rare)), task)
        retrieval += _expected_hits(np.eye(story.GRADES)[part["acuity"].to_numpy()], task)
        if remembered is not None:
            memory += _expected_hits(acuity_law(common, _product_cdf(remembered, rare)), task)
    n = truth.height
    return Ceilings(task, n, parametric / n, retrieval / n, float("nan") if remembered is None else memory / n)


def rare_numbers(truth: pl.DataFrame) -> np.ndarray:
    """Rare entities of each visit, int64 [n, 2], -1 where none."""
    return truth.select("rare_1", "rare_2").fill_null(-1).to_numpy().astype(np.int64)


def prior_cdf(rare_severity: np.ndarray, rare: np.ndarray) -> np.ndarray:
    """P(highest rare severity <= m) for unknown rare entities of known kind, float64 [n, 10].

    Within a kind they are drawn without replacement, so with C(m) of N at most m and k drawn the probability is
    C(m) (C(m) - 1) ... / (N (N - 1) ...), k factors each.
    """
    result = np.ones((len(rare), story.GRADES))
    is_drug = rare >= _RARE_CONDITIONS
    conditions, drugs = np.split(rare_severity, [_RARE_CONDITIONS])
    groups = ((conditions, (rare >= 0) & ~is_drug), (drugs, is_drug))
    for severity, member in groups:
        at_most = (severity[:, None] <= np.arange(story.GRADES)).sum(axis=0)
        drawn = member.sum(axis=1)
        for taken in range(rare.shape[1]):
            factor = np.maximum(at_most - taken, 0) / (len(severity) - taken)
            result[drawn > taken] *= factor
    return result


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

    Starts from how often each severity occurs in the kind. Visits with two rare entities (one in seven of those that
    have any) are left out: they would tie the entities together and say little more.
    """
    single = seen.filter(pl.col("n_rare") == 1)
    severity = np.arange(story.GRADES)
    acuity = np.maximum(single["common_acuity"].to_numpy()[:, None], severity)
    likelihood = _label_likelihood(task)[acuity, single[task].to_numpy()[:, None]]
    logs = np.concatenate(
        [np.tile(_log_frequency(part), (len(part), 1)) for part in np.split(rare_severity, [_RARE_CONDITIONS])]
    )
    np.add.at(logs, single["rare_1"].to_numpy(), np.log(np.maximum(likelihood, 1e-30)))  # 1e-30: no -inf minus -inf
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


def _expected_hits(acuity: np.ndarray, task: str) -> float:
    """How many of the visits the most probable label is expected to get right."""
    return float(label_law(acuity, task).max(axis=1).sum())


def all_ceilings(truth: pl.DataFrame, rare_severity: np.ndarray) -> Sequence[Ceilings]:
    """Ceilings of each task over all visits that have a label in it."""
    return [world_ceilings(truth.filter(pl.col(task).is_not_null()), rare_severity, task) for task in TASKS]
