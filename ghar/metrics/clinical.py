"""The numbers of GraphWalker's tables on its three tasks, each with mean and deviation over bootstrap resamples.

Mortality and readmission (two classes): auroc, auprc, and F1 of class 1 at a threshold that was chosen on validation
samples; best_f1 takes the best threshold of the samples themselves, which looks at the answers: the released code
reports that one, here it stands beside the other. Length of stay (several classes): ma_roc, the mean AUROC over
classes, one against the rest, and mi_roc, the AUROC of all (sample, class) pairs together (Harutyunyan et al. 2019).

A prediction that could not be read (None) is wrong: it ranks its sample at the wrong end. Resamples draw patients
(`patients`: see ghar.metrics.bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ghar.errors import BadInput
from ghar.metrics.bootstrap import RESAMPLES, BootstrapSpread, Patients, ratio, spreads
from ghar.metrics.scores import mean_over_classes, one_against_rest


def risk(
    labels: Sequence[int],
    scores: Sequence[float | None],
    threshold: float,
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, BootstrapSpread]:
    """auroc, auprc, f1 and best_f1 of probabilities of class 1; a score of `threshold` or more says yes.

    Numbers that the labels leave undefined are left out. Raises BadInput for unequal lengths, other labels than 0 and
    1, scores outside 0..1, and no samples.
    """
    truth, score = class_1_scores(labels, scores)
    areas, best = one_against_rest(truth, score), best_f1(truth, score)
    flags = score >= threshold

    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        auroc, auprc = areas(weights)
        hits = weights @ (truth & flags)
        f1 = ratio(2 * hits, weights @ truth + weights @ flags)
        defined = weights @ truth > 0
        return {"auroc": auroc, "auprc": auprc, "f1": np.where(defined, f1, np.nan), "best_f1": best(weights)[0]}

    return spreads(statistic, len(truth), patients=patients, seed=seed, resamples=resamples)


def best_threshold(labels: Sequence[int], scores: Sequence[float | None]) -> float:
    """The score at or above which to say yes for the highest F1 of class 1, the highest such score among equals; 0.5
    without positives. To be chosen on validation samples. Raises BadInput as `risk`."""
    truth, score = class_1_scores(labels, scores)
    if not truth.any():
        return 0.5
    return float(best_f1(truth, score)(np.ones((1, len(truth))))[1][0])


def length_of_stay(
    labels: Sequence[int],
    probabilities: Sequence[Sequence[float] | None],
    classes: int,
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, BootstrapSpread]:
    """ma_roc (over the classes that a resample has) and mi_roc.

    Raises BadInput for rows that do not have a finite number for every class, labels outside 0..classes-1, unequal
    lengths and no samples.
    """
    truth = _checked_labels(labels, len(probabilities), classes)
    table = class_scores(truth, probabilities, classes)
    one_hot = truth[:, None] == np.arange(classes)
    curves = [one_against_rest(one_hot[:, c], table[:, c]) for c in range(classes)]
    pooled = one_against_rest(one_hot.ravel(), table.ravel())

    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        each = np.stack([curve(weights)[0] for curve in curves], axis=1)
        return {"ma_roc": mean_over_classes(each), "mi_roc": pooled(np.repeat(weights, classes, axis=1))[0]}

    return spreads(statistic, len(truth), patients=patients, seed=seed, resamples=resamples)


def class_1_scores(
    labels: Sequence[int], scores: Sequence[float | None]
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each label is class 1, bool [n], and its score, float [n]; a missing one lies beyond the wrong end."""
    truth = _checked_labels(labels, len(scores), 2).astype(bool)
    score = np.array([(-1.0 if y else 2.0) if s is None else s for s, y in zip(scores, truth, strict=True)])
    given = np.array([s is not None for s in scores])
    outside = given & ~((score >= 0) & (score <= 1))
    if outside.any():
        i = int(np.argmax(outside))
        raise BadInput(f"The score of sample {i} is {score[i]}, not a probability: give 0 to 1, or None for no answer.")
    return truth, score


def _checked_labels(labels: Sequence[int], predictions: int, classes: int) -> np.ndarray:
    truth = np.asarray(labels, dtype=np.int64)
    if len(truth) != predictions or not predictions:
        raise BadInput(f"{len(truth)} labels and {predictions} predictions: give one prediction per label, at least 1.")
    if truth.min() < 0 or truth.max() >= classes:
        raise BadInput(f"Labels run from {truth.min()} to {truth.max()}, the task has classes 0 to {classes - 1}.")
    return truth


def class_scores(
    labels: Sequence[int] | np.ndarray, probabilities: Sequence[Sequence[float] | None], classes: int
) -> np.ndarray:
    """float [n, classes]: the score of each class of each sample; one without an answer is ranked at the wrong end."""
    return np.stack([_row(row, labels[i], classes, i) for i, row in enumerate(probabilities)])


def _row(row: Sequence[float] | None, label: int, classes: int, number: int) -> np.ndarray:
    """The probabilities of a sample; without an answer, none for the true class and 1 for every other."""
    if row is None:
        return (np.arange(classes) != label).astype(float)
    array = np.asarray(row, dtype=float)
    if array.shape != (classes,) or not np.isfinite(array).all():
        raise BadInput(f"Sample {number} has probabilities {row}: give one number for each of the {classes} classes.")
    return array


def best_f1(truth: np.ndarray, score: np.ndarray) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Weights [r, n] -> the highest F1 over thresholds [r] (NaN without positives) and its threshold [r]."""
    order = np.argsort(-score, kind="stable")
    ends = np.append(np.flatnonzero(np.diff(score[order])), len(score) - 1)  # a threshold is the last of equal scores
    thresholds = score[order][ends]

    def best(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        drawn = weights[:, order]
        hits = (drawn * truth[order]).cumsum(axis=1)[:, ends]
        f1 = ratio(2 * hits, drawn.cumsum(axis=1)[:, ends] + (weights @ truth)[:, None])
        f1 = np.where((weights @ truth > 0)[:, None], f1, np.nan)
        at = np.argmax(np.nan_to_num(f1), axis=1)
        return f1[np.arange(len(f1)), at], thresholds[at]

    return best
