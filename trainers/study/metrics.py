"""Every number that a table may have, as a function of weights over the rows of one predictions file.

A name may carry a parameter: net_benefit@0.2 (decision curve at a threshold of 0.2, Vickers and Elkin 2006),
observed@0.25 (share of class 1 among predictions of about 0.25, for a reliability diagram), distance@2 (share of
replies two labels away from the truth, for labels in order; GHAR, Fig. 10c), class_f1@2 (F1 of the third label against
all others; EHR-RAG, Tables 1 and 2). log_retrievals is the natural logarithm of the retrievals for all samples
together: KARE's bar of GHAR's Fig. 9(a), 9.1, is one for each of a fifth of the visits of its Table III.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import polars as pl

from ghar.envs.summaries import LIKENESS
from ghar.errors import BadInput
from ghar.metrics.answers import FEWEST, too_few
from ghar.metrics.bootstrap import ratio
from ghar.metrics.calibration import BINS, ECE, calibration_statistic
from ghar.metrics.clinical import best_f1, class_1_scores, class_scores
from ghar.metrics.scores import cells_of, from_confusion, from_scores, one_against_rest

Number = Callable[[np.ndarray], np.ndarray]  # weights [r, n] -> [r]
# Of the model behind a row: its samples say nothing of them, no test. For whom they are kept.
MODEL_METRICS = {"training_seconds": "SFT of the warm-up", "parameters": "the base and the policy after SFT or RL"}
MEANS = {  # means of a column
    "reward": "reward", "retrieval_rate": "retrieved", "rounds": "rounds", "calls": "calls", "tokens": "tokens",
    "lookups": "retrievals", "seconds": "seconds", "options_f1": "options_f1",
    "entropy_drop": "entropy_drop", **{name: name for name in (*LIKENESS, *MODEL_METRICS)},
}  # fmt: skip
SHARES = ("retrieval_rate", "options_f1", *LIKENESS)  # of `MEANS`, those that end at 1
BOUNDLESS = ("reward", "entropy_drop")  # of `MEANS`, those that may be of any size and sign
CONFUSION = ("balanced_accuracy", "macro_f1", "sensitivity", "specificity")
SCORES = ("auroc", "auprc")
# Of GraphWalker's tables, who is silent ranked at the wrong end; the second's threshold looks at the test's truth.
PAPERS = ("micro_auroc", "f1_best_on_test")
# Whose rule on too few patients holds for it.
LIKE = {"micro_auroc": "auroc", "f1_best_on_test": "sensitivity", "weighted_f1": "macro_f1"}
CALIBRATION = ("brier", ECE)  # of the samples that have probabilities, as in a report
AT_VALID = ("f1_at_valid", "sensitivity_at_valid", "specificity_at_valid")  # threshold chosen on validation samples
NAMES = ("accuracy", "readable", "f1", "weighted_f1", *CONFUSION, *SCORES, *PAPERS, *CALIBRATION, *MEANS,
         "log_retrievals", "when_f1", *AT_VALID)  # fmt: skip
PARAMETERS = {  # what stands behind @, as axes have it
    "net_benefit": "Threshold", "observed": "Predicted probability", "distance": "Labels from the truth",
    "accuracy_look_ups": "Look-ups that a visit needs", "class_f1": "Label, from 0",
}  # fmt: skip
TITLES = {
    "accuracy": "Accuracy", "balanced_accuracy": "B-Accuracy", "macro_f1": "F1 (macro)", "f1": "F1", "auroc": "AUROC",
    "auprc": "AUPRC", "sensitivity": "Sensitivity", "specificity": "Specificity", "readable": "Readable replies",
    "retrieval_rate": "Retrieves", "rounds": "Rounds", "calls": "Calls", "tokens": "Tokens", "lookups": "Look-ups",
    "seconds": "Seconds", "reward": "Reward", "when_f1": "When to retrieve, F1", "brier": "Brier", "ece": "ECE",
    "micro_auroc": "AUROC (micro)", "f1_best_on_test": "F1, best threshold of the test", "options_f1": "F1 of options",
    "rouge_1": "ROUGE-1", "rouge_2": "ROUGE-2", "rouge_l": "ROUGE-L", "sari": "SARI", "bleu_1": "BLEU-1",
    "bleu_4": "BLEU-4", "log_retrievals": "Retrievals, log", "weighted_f1": "F1 (weighted)",
    "entropy_drop": "Entropy drop, nats a token", "class_f1": "F1 of label",
    "training_seconds": "Seconds to the best step", "parameters": "Parameters",
    "f1_at_valid": "F1, threshold of validation",
    "distance": "Share of replies", "accuracy_look_ups": "Accuracy", "observed": "Share that is so",
    "sensitivity_at_valid": "Sensitivity, threshold of validation",
    "specificity_at_valid": "Specificity, threshold of validation",
}  # fmt: skip

# between title and parameter, where it is not "at"
_AT = {"class_f1": "", "accuracy_look_ups": ", look-ups needed:", "distance": " at distance"}


def title_of(metric: str) -> str:
    name, _, parameter = metric.partition("@")
    title = TITLES.get(name, name.replace("_", " ").capitalize())
    return f"{title}{_AT.get(name, ' at')} {parameter}" if parameter else title


def check_metric(metric: str) -> None:
    """BadInput for a number that no one knows."""
    name, at, parameter = metric.partition("@")
    if name not in (PARAMETERS if at else NAMES):
        every = *NAMES, *(f"{one}@X" for one in PARAMETERS)
        raise BadInput(f"There is no metric {metric}: choose among {', '.join(every)}.")
    if at and not _is_number(parameter):
        raise BadInput(f"metric {metric}: write a number after @.")


def bounds_of(metric: str) -> tuple[float, float]:
    """The least and the largest that a number can be."""
    name = metric.partition("@")[0]
    if name in (*BOUNDLESS, "net_benefit"):
        return -np.inf, np.inf if name in BOUNDLESS else 1.0
    if name == "brier":
        return 0.0, 2.0  # of more than two labels; of two the larger is 1
    return 0.0, np.inf if (name in MEANS and name not in SHARES) or name == "log_retrievals" else 1.0


def number_of(metric: str, frame: pl.DataFrame, labels: Sequence[str]) -> Number:
    """The number on these rows. labels: of the task, in order; () where every sample has its own (questions).

    BadInput, as the reason of a hole, where these rows do not have it.
    """
    name, _, parameter = metric.partition("@")
    if name == "accuracy":
        return _mean(frame["correct"])
    if name == "readable":
        return _mean(frame["as_replied"].is_not_null())
    if name in MEANS:
        return _mean(_column(metric, frame))
    if name == "log_retrievals":
        return _log_retrievals(_column("lookups", frame))
    if name == "when_f1":
        return _when(frame)
    if name == "accuracy_look_ups":
        return _mean(frame["correct"], (frame["look_ups"] == int(parameter)).fill_null(False), metric)
    if not labels:
        raise BadInput("every sample has answers of its own, so there are no classes")
    truth, guess = _indices(frame["label"], labels), _indices(frame["prediction"], labels)
    if len(set(truth.tolist())) > 1 and (why := few_of(name, frame, labels)):
        raise BadInput(f"too few: {why}")
    if name == "distance":
        return _distance(truth, guess, int(parameter))
    if name == "class_f1":
        if int(parameter) >= len(labels):
            raise BadInput(f"the task has {len(labels)} labels")
        return _class_f1(frame, truth, guess, int(parameter))
    if name in CONFUSION or (name == "f1" and len(labels) != 2):
        return _of_confusion(truth, guess, len(labels), "macro_f1" if name == "f1" else name)
    if name == "f1":
        return _f1(truth == 1, guess == 1)
    if name == "weighted_f1":
        return _weighted_f1(truth, guess, len(labels))
    if name in CALIBRATION:
        return _calibration(name, frame, truth)
    if name in SCORES:
        return _areas(name, truth, _scores(frame, len(labels)))
    if name == "micro_auroc":
        return _micro_auroc(truth, _given(frame), len(labels))
    if len(labels) != 2:
        raise BadInput(f"{title_of(metric)} is of two classes, and the task has {len(labels)}")
    return _of_two_classes(name, parameter, frame, truth == 1, _scores(frame, 2)[:, 1], guess)


def _column(metric: str, frame: pl.DataFrame) -> pl.Series:
    """What a metric of `MEANS` is the mean of."""
    name = metric.partition("@")[0]
    if name in MODEL_METRICS and (name not in frame.columns or frame[name].has_nulls()):
        raise BadInput(f"it has no {title_of(name).lower()}, which is kept for {MODEL_METRICS[name]}")
    if MEANS[name] not in frame.columns:
        raise BadInput(f"played before {title_of(metric).lower()} was kept: play the cell again")
    return frame[MEANS[name]]


def _areas(name: str, truth: np.ndarray, scores: np.ndarray) -> Number:
    """A metric of `SCORES`. truth: indices, [N]; scores: probabilities, [N, labels]."""
    if len(set(truth.tolist())) < 2:
        raise BadInput(f"one class only among {len(truth)} samples")
    areas = from_scores(truth, scores)
    return lambda weights: areas(weights)[name]


def _micro_auroc(truth: np.ndarray, given: Sequence[Sequence[float] | None], labels: int) -> Number:
    """AUROC of all (sample, label) pairs together. truth: indices, [N]; given: probabilities."""
    scores = class_scores(truth, given, labels)
    each = one_against_rest(np.eye(labels, dtype=bool)[truth].ravel(), scores.ravel())
    return lambda weights: each(np.repeat(weights, labels, axis=1))[0]


def _calibration(name: str, frame: pl.DataFrame, truth: np.ndarray) -> Number:
    """Of the samples that have probabilities: one without says nothing about its confidence (ghar.metrics.calibration).
    truth: indices, [N]."""
    shares = _given(frame)
    given = np.array([row is not None for row in shares])
    statistic = calibration_statistic(truth[given].tolist(), np.array([row for row in shares if row is not None]))
    return lambda weights: statistic(weights[:, given])[name]


def _of_two_classes(
    name: str, parameter: str, frame: pl.DataFrame, positive: np.ndarray, scores: np.ndarray, guess: np.ndarray
) -> Number:
    """A metric of a task with two classes. positive: whether the label is the second class, [N]; scores: that class's
    probabilities, [N]; guess: the answers, [N], -1 for none.

    A threshold decides for samples with probabilities alone. For the others the answer does: none is wrong, and is no
    reason to act.
    """
    given = frame["probabilities"].is_not_null().to_numpy()
    if name == "observed":
        near = given & (np.abs(scores - float(parameter)) <= 0.5 / BINS)
        return lambda weights: ratio((weights * near) @ positive, weights @ near)
    if name == "net_benefit":
        acted = np.where(given, scores >= float(parameter), guess == 1)
        return _net_benefit(positive, acted, float(parameter))
    if name == "f1_best_on_test":
        risks = [None if row is None else min(1.0, row[1]) for row in _given(frame)]
        best = best_f1(*class_1_scores(positive.astype(int).tolist(), risks))
        return lambda weights: best(weights)[0]
    answered = np.where(guess < 0, ~positive, guess == 1)
    guessed = np.where(given, scores >= _threshold(frame), answered)
    if name == "f1_at_valid":
        return _f1(positive, guessed)
    asked = positive if name == "sensitivity_at_valid" else ~positive
    return lambda weights: ratio((weights * asked) @ (guessed == positive), weights @ asked)


def few_of(name: str, frame: pl.DataFrame, labels: Sequence[str]) -> str | None:
    """ "1 patient with label yes" for a metric that would rest on so few (ghar.metrics.answers), else None."""
    if "subject_id" not in frame.columns or not len(frame):
        return None
    rows = frame.select("sample_id", "subject_id", "label").to_dicts()
    return too_few(rows, labels).get(LIKE.get(name, name.removesuffix("_at_valid")))


def _mean(values: pl.Series, those: pl.Series | None = None, what: str = "") -> Number:
    kept = np.ones(len(values)) if those is None else those.to_numpy().astype(float)
    numbers = values.cast(pl.Float64).to_numpy() * 1.0
    if not kept.any():
        raise BadInput(f"no sample is of {what}")
    if np.isnan(numbers[kept > 0]).any():
        raise BadInput("some samples have no such number")
    return lambda weights: ratio(weights @ (np.nan_to_num(numbers) * kept), weights @ kept)


def _log_retrievals(retrievals: pl.Series) -> Number:
    """Of all samples together; a draw of patients that has none counts one. BadInput for a row without any."""
    if not retrievals.sum():
        raise BadInput("it never retrieves, and 0 has no logarithm")
    mean, samples = _mean(retrievals), len(retrievals)
    return lambda weights: np.log(np.maximum(samples * mean(weights), 1.0))


def _indices(values: pl.Series, labels: Sequence[str]) -> np.ndarray:
    """Label indices, -1 for no answer."""
    place = {label: i for i, label in enumerate(labels)}
    return np.array([place.get(value, -1) for value in values], dtype=np.int64)


def _scores(frame: pl.DataFrame, classes: int) -> np.ndarray:
    """Label probabilities; a sample without any, among others that have them, knows nothing."""
    return np.array([[1 / classes] * classes if row is None else row for row in _given(frame)])


def _given(frame: pl.DataFrame) -> list[list[float] | None]:
    """Label probabilities, None where a sample has none. BadInput where all are so."""
    rows = frame["probabilities"].to_list()
    if all(row is None for row in rows):
        raise BadInput("no label probabilities: the policy gives answers alone")
    return rows


def _of_confusion(truth: np.ndarray, guess: np.ndarray, classes: int, name: str) -> Number:
    if name in ("sensitivity", "specificity") and classes != 2:
        raise BadInput(f"{TITLES[name]} is of two classes, and the task has {classes}")
    if len(set(truth.tolist())) < 2:
        raise BadInput(f"one class only among {len(truth)} samples")
    cells = cells_of(truth.tolist(), [None if i < 0 else i for i in guess.tolist()], classes)
    every = from_confusion(cells, classes)
    return lambda weights: every(weights)[name]


def _f1(truth: np.ndarray, guess: np.ndarray) -> Number:
    if not truth.any():
        raise BadInput(f"one class only among {len(truth)} samples")
    return lambda weights: ratio(2 * weights @ (truth & guess), weights @ truth + weights @ guess)


def _weighted_f1(truth: np.ndarray, guess: np.ndarray, classes: int) -> Number:
    """The mean of the classes' F1, each weighted by how often it is true."""
    if len(set(truth.tolist())) < 2:
        raise BadInput(f"one class only among {len(truth)} samples")
    numbers = np.arange(classes)
    right, named = truth[:, None] == numbers, guess[:, None] == numbers

    def number(weights: np.ndarray) -> np.ndarray:
        often = weights @ right
        f1 = ratio(2 * (weights @ (right & named)), often + weights @ named)
        return ratio((np.nan_to_num(f1) * often).sum(axis=1), often.sum(axis=1))

    return number


def _class_f1(frame: pl.DataFrame, truth: np.ndarray, guess: np.ndarray, label: int) -> Number:
    if "subject_id" in frame.columns:
        own = frame.filter(pl.Series(truth == label))
        if 0 < (patients := own["subject_id"].n_unique()) < FEWEST:
            raise BadInput(f"too few: {patients} patient{'' if patients == 1 else 's'} with label {own['label'][0]}")
    return _f1(truth == label, guess == label)


def _distance(truth: np.ndarray, guess: np.ndarray, steps: int) -> Number:
    return lambda weights: ratio(weights @ ((guess >= 0) & (np.abs(truth - guess) == steps)), weights.sum(axis=1))


def _net_benefit(truth: np.ndarray, guess: np.ndarray, threshold: float) -> Number:
    odds = threshold / (1 - threshold)
    return lambda weights: ratio(weights @ (guess & truth) - odds * (weights @ (guess & ~truth)), weights.sum(axis=1))


def _threshold(frame: pl.DataFrame) -> float:
    thresholds = frame["threshold"].drop_nulls()
    if not len(thresholds):
        raise BadInput("no threshold was chosen on validation samples")
    return float(thresholds[0])


def _when(frame: pl.DataFrame) -> Number:
    if frame["needs"].null_count():
        raise BadInput("it is not known which samples need a look-up")
    return _f1(frame["needs"].to_numpy().astype(bool), frame["retrieved"].to_numpy().astype(bool))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
