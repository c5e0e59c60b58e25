"""How good predictions are: accuracy, balanced accuracy, macro-F1, AUROC, AUPRC, each with a 95% interval
over patients (`patients`: see ghar.metrics.bootstrap).

A prediction that could not be read (None) is wrong: it has a column of its own in the confusion matrix, the last.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ghar.errors import BadInput
from ghar.metrics.bootstrap import RESAMPLES, Interval, Patients, Statistic, intervals, ratio


def confusion_matrix(labels: Sequence[int], predictions: Sequence[int | None], n_classes: int) -> np.ndarray:
    """Counts [n_classes, n_classes + 1]: row = label, column = prediction, last column = no readable answer.

    Raises BadInput for labels or predictions outside 0..n_classes-1 and for unequal lengths.
    """
    cells = cells_of(labels, predictions, n_classes)
    return np.bincount(cells, minlength=n_classes * (n_classes + 1)).reshape(n_classes, n_classes + 1)


def classification(
    labels: Sequence[int],
    predictions: Sequence[int | None],
    n_classes: int,
    scores: np.ndarray | None = None,
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Interval]:
    """Metrics of one policy on one set of samples.

    scores: probabilities [n, n_classes], where a policy has them; then auroc and auprc exist, of class 1 for two
    classes and else the mean over one-against-rest. With two classes there are sensitivity (class 1), specificity, ppv
    and npv (the share of class 1, and of class 0, predictions that are right).
    A metric that these labels leave undefined is left out (sensitivity without positives).
    Raises BadInput as `confusion_matrix`, and for no samples or scores of the wrong shape or not finite.
    """
    cells = cells_of(labels, predictions, n_classes)
    if not len(cells):
        raise BadInput("there are no samples to evaluate: use a split that is not empty")
    parts: list[Statistic] = [from_confusion(cells, n_classes)]
    if scores is not None:
        parts.append(from_scores(np.asarray(labels), _checked(scores, len(cells), n_classes)))

    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        return {name: values for part in parts for name, values in part(weights).items()}

    return intervals(statistic, len(cells), patients=patients, seed=seed, resamples=resamples)


def class_f1(
    labels: Sequence[int],
    predictions: Sequence[int | None],
    n_classes: int,
    *,
    patients: Patients,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[int, Interval]:
    """F1 of each class; one that is neither a label nor a prediction has none. Raises BadInput as `classification`."""
    cells = cells_of(labels, predictions, n_classes)
    if not len(cells):
        raise BadInput("there are no samples to evaluate: use a split that is not empty")
    truth, guess = np.divmod(cells, n_classes + 1)
    hit = (truth == guess)[:, None] & (truth[:, None] == np.arange(n_classes))
    both = (truth[:, None] == np.arange(n_classes)).astype(float) + (guess[:, None] == np.arange(n_classes))

    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        f1 = ratio(2 * weights @ hit.astype(float), weights @ both)
        return {str(i): f1[:, i] for i in range(n_classes)}

    by_class = intervals(statistic, len(cells), patients=patients, seed=seed, resamples=resamples)
    return {int(name): interval for name, interval in by_class.items()}


def cells_of(labels: Sequence[int], predictions: Sequence[int | None], n_classes: int) -> np.ndarray:
    """Index of each sample's cell in the flattened confusion matrix."""
    if len(labels) != len(predictions):
        raise BadInput(f"{len(labels)} labels and {len(predictions)} predictions: give one prediction per label")
    truth = np.asarray(labels, dtype=np.int64)
    guess = np.array([n_classes if p is None else p for p in predictions], dtype=np.int64)
    if len(truth) and (truth.min() < 0 or truth.max() >= n_classes):
        raise BadInput(f"labels run from {truth.min()} to {truth.max()}, the task has classes 0 to {n_classes - 1}")
    outside = [p for p in predictions if p is not None and not 0 <= p < n_classes]
    if outside:
        raise BadInput(f"prediction {outside[0]} is not a class (0 to {n_classes - 1}): use None for no answer")
    return truth * (n_classes + 1) + guess


def _checked(scores: np.ndarray, n: int, n_classes: int) -> np.ndarray:
    array = np.asarray(scores, dtype=float)
    if array.shape != (n, n_classes):
        raise BadInput(f"scores have shape {array.shape}, need ({n}, {n_classes}): one row per sample")
    if not np.isfinite(array).all():
        row = int(np.argmin(np.isfinite(array).all(axis=1)))
        raise BadInput(f"scores of sample {row} are not finite: give a probability for every class")
    return array


def from_confusion(cells: np.ndarray, n_classes: int) -> Statistic:
    """What the confusion matrix tells. cells: each sample's, as `cells_of` numbers them."""
    one_hot = np.zeros((len(cells), n_classes * (n_classes + 1)))
    one_hot[np.arange(len(cells)), cells] = 1.0

    def by_class(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        matrix = (weights @ one_hot).reshape(len(weights), n_classes, n_classes + 1)
        truth, guess = matrix.sum(axis=2), matrix.sum(axis=1)[:, :n_classes]
        hits = np.diagonal(matrix, axis1=1, axis2=2)
        # Classes that occur neither as label nor as prediction do not count, as in scikit-learn.
        return truth, guess, hits, ratio(hits, truth), ratio(2 * hits, truth + guess)

    *_, whole_recall, whole_f1 = by_class(np.ones((1, len(cells))))

    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        truth, guess, hits, recall, f1 = by_class(weights)
        values = {
            "accuracy": hits.sum(axis=1) / truth.sum(axis=1),
            "balanced_accuracy": mean_over_classes(fill_lost(recall, whole_recall)),
            "macro_f1": mean_over_classes(fill_lost(f1, whole_f1)),
        }
        if n_classes == 2:
            right = ratio(hits, guess)
            values |= {"sensitivity": recall[:, 1], "specificity": recall[:, 0], "ppv": right[:, 1], "npv": right[:, 0]}
        return values

    return statistic


def from_scores(labels: np.ndarray, scores: np.ndarray) -> Statistic:
    """auroc and auprc of probabilities [n, classes]."""
    classes = [1] if scores.shape[1] == 2 else range(scores.shape[1])
    curves = [one_against_rest(labels == c, scores[:, c]) for c in classes]

    def by_class(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        areas = [curve(weights) for curve in curves]
        return np.stack([roc for roc, _ in areas], axis=1), np.stack([pr for _, pr in areas], axis=1)

    whole = by_class(np.ones((1, len(labels))))

    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        pairs = zip(("auroc", "auprc"), by_class(weights), whole, strict=True)
        several = len(curves) > 1  # the one area of two classes stays undefined on a draw of one
        return {name: mean_over_classes(fill_lost(areas, own) if several else areas) for name, areas, own in pairs}

    return statistic


def one_against_rest(positive: np.ndarray, score: np.ndarray) -> Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Weights [r, n] -> AUROC and average precision [r] of one class; equal scores share one threshold."""
    order = np.argsort(-score, kind="stable")
    positive = positive[order]
    starts = np.flatnonzero(np.diff(score[order], prepend=np.inf))

    def areas(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sorted_weights = weights[:, order]
        ups = np.add.reduceat(sorted_weights * positive, starts, axis=1)
        downs = np.add.reduceat(sorted_weights * ~positive, starts, axis=1)
        ups_so_far, downs_so_far = ups.cumsum(axis=1), downs.cumsum(axis=1)
        all_ups, all_downs = ups_so_far[:, -1], downs_so_far[:, -1]
        won = (downs * (ups_so_far - ups / 2)).sum(axis=1)
        precision = np.nan_to_num(ratio(ups_so_far, ups_so_far + downs_so_far))
        # A class without negatives has no ROC curve; its precision would be 1 for any scores.
        both = np.where(all_downs > 0, all_ups, 0.0)
        return ratio(won, all_ups * all_downs), ratio((ups * precision).sum(axis=1), both)

    return areas


def fill_lost(drawn: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Give a class that a draw loses [r, classes] its number of all samples [1, classes]: a mean over the others would
    be of another quantity, beyond what the whole one can be."""
    return np.where(np.isnan(drawn), whole, drawn)


def mean_over_classes(values: np.ndarray) -> np.ndarray:
    """Mean over the classes [r, classes] that are defined, NaN where none is."""
    return ratio(np.nan_to_num(values).sum(axis=1), (~np.isnan(values)).sum(axis=1))


def set_scores(answer: int, chosen: int | None) -> dict[str, float]:
    """Precision, recall and F1 of one question; sets of options are whole numbers, bit i for option i."""
    hits = (answer & (chosen or 0)).bit_count()
    precision = hits / chosen.bit_count() if chosen else 0.0
    recall = hits / answer.bit_count()
    f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}
