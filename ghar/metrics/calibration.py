"""Can a policy's label probabilities be believed? Expected calibration error, Brier score, and one temperature.

Numbers are of the rows that have label_probabilities; a row without says nothing about its confidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ghar.errors import BadInput
from ghar.metrics.bootstrap import RESAMPLES, Interval, Patients, Statistic, percentiles, ratio, resampled
from ghar.metrics.rows import Row

BINS = 10
ECE = "ece"  # a sum of absolute gaps, whose interval is moved (`bootstrap.percentiles`)
COLDEST, HOTTEST = 0.01, 100.0  # temperatures that are tried
_TINY = 1e-12  # a probability of 0 has no logarithm; one wrong row of it must not decide alone


def calibration(
    labels: Sequence[int],
    probabilities: np.ndarray,
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Interval]:
    """The numbers of `calibration_statistic` with their intervals, {} without samples."""
    if not len(labels):
        return {}
    draws = resampled(calibration_statistic(labels, probabilities), len(labels), patients, seed, resamples)
    return {name: _interval(value, drawn, centred=name == ECE) for name, (value, drawn) in draws.items()}


def calibration_statistic(labels: Sequence[int], probabilities: np.ndarray) -> Statistic:
    """ece, brier, confidence (mean top probability) and top_accuracy (of the most probable label) as functions of
    weights; NaN where a resample has no sample.

    probabilities: [n, classes]. ece: ten equal-width bins (low, high] of the top probability, the mean over samples of
    the gap between a bin's confidence and its accuracy (Guo et al. 2017). brier: the sum over classes of squared
    errors, halved for two classes, as scikit-learn has it. Raises BadInput for rows that are no distribution.
    """
    table = _distributions(probabilities, len(labels))
    truth, top = np.asarray(labels), table.max(axis=1)
    right = (table.argmax(axis=1) == truth).astype(float)
    squared = ((table - np.eye(table.shape[1])[truth]) ** 2).sum(axis=1) / (2 if table.shape[1] == 2 else 1)
    bins = np.searchsorted(np.arange(1, BINS) / BINS, top, side="left")
    gaps = (bins[:, None] == np.arange(BINS)) * (top - right)[:, None]

    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        samples = weights.sum(axis=1)
        return {
            ECE: ratio(np.abs(weights @ gaps).sum(axis=1), samples),
            "brier": ratio(weights @ squared, samples),
            "confidence": ratio(weights @ top, samples),
            "top_accuracy": ratio(weights @ right, samples),
        }

    return statistic


def _interval(value: float, drawn: np.ndarray, centred: bool) -> Interval:
    low, high = percentiles(value, drawn, centred)
    return Interval(value, max(0.0, low), min(1.0, high) if centred else high)


def temperature(rows: Sequence[Row], labels: Sequence[str]) -> float:
    """The temperature T that makes softmax(log p / T) of validation rows most likely (Guo et al. 2017).

    Above 1: the policy was over-confident. 1 where every temperature is as good. labels: the task's, in index order.
    Raises BadInput when no row has label_probabilities or a label is not one of the task.
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    predictions = [row for row in rows if row.get("label_probabilities") is not None]
    if not predictions:
        raise BadInput("no row has label_probabilities: a temperature needs a policy that gives them")
    strange = {row["label"] for row in predictions} - set(labels)
    if strange:
        raise BadInput(
            f"{min(strange)!r} is not a label of the task: give the labels in the order of the probabilities"
        )
    truth = np.array([labels.index(row["label"]) for row in predictions])
    logs = _logs(_distributions(np.array([row["label_probabilities"] for row in predictions]), len(predictions)))

    def loss(log_t: float) -> float:
        return float(-log_softmax(logs / np.exp(log_t), axis=1)[np.arange(len(truth)), truth].mean())

    # in 1 / T the loss is convex, so in log T it has one valley
    best: Any = minimize_scalar(loss, bounds=np.log([COLDEST, HOTTEST]), method="bounded", options={"xatol": 1e-7})
    return float(np.exp(best.x)) if best.fun < loss(0.0) - 1e-12 else 1.0


def calibrated(rows: Sequence[Row], temperature: float) -> list[dict[str, Any]]:
    """The rows with label_probabilities at this temperature; the most probable label stays, rows without stay as they
    are. Raises BadInput for a temperature that is not above 0."""
    if not temperature > 0:
        raise BadInput(f"a temperature is a number above 0, got {temperature}")
    return [{**row, "label_probabilities": _at(row.get("label_probabilities"), temperature)} for row in rows]


def _at(probabilities: Sequence[float] | None, temperature: float) -> list[float] | None:
    if probabilities is None:
        return None
    from scipy.special import softmax

    return softmax(_logs(_distributions(np.array([probabilities]), 1)) / temperature, axis=1)[0].tolist()


def _distributions(probabilities: np.ndarray, n: int) -> np.ndarray:
    """float [n, classes], each row adding up to 1."""
    table = np.asarray(probabilities, dtype=float)
    if table.ndim != 2 or len(table) != n:
        raise BadInput(f"probabilities have shape {table.shape}: give one row of all classes per sample ({n})")
    wrong = ~((table >= 0).all(axis=1) & (np.abs(table.sum(axis=1) - 1) < 1e-3))
    if wrong.any():
        row = int(np.argmax(wrong))
        raise BadInput(f"probabilities of row {row} are {table[row].tolist()}: give numbers from 0 that add up to 1")
    return table


def _logs(table: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(table, _TINY))
