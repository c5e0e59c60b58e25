"""Every number of one policy, from its episode rows (see runfolder): what summary.json holds under policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ghar.errors import BadInput
from ghar.metrics.answers import answer_counts, too_few
from ghar.metrics.bootstrap import (
    RESAMPLES,
    Interval,
    Patients,
    intervals,
    mean_interval,
    paired_difference,
    ratio,
    ratio_interval,
)
from ghar.metrics.calibration import calibrated, calibration
from ghar.metrics.rows import Row, counts, paired, patients_of, tokens_of
from ghar.metrics.scores import classification, confusion_matrix
from ghar.metrics.style import ACCURACY

Decision = tuple[bool, bool]  # whether a sample needed a retrieval, and whether it got one


def policy_summary(
    rows: Sequence[Row],
    labels: Sequence[str],
    *,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> dict[str, Any]:
    """{metric: [value, low, high], "confusion": counts, "n": samples, "patients": distinct ones, "failures": episodes
    that could not finish}; intervals by drawing patients (each row's subject_id) whole.

    labels: the task's label strings in index order. AUROC and AUPRC exist where rows carry label_probabilities; an
    unreadable answer among them counts as knowing nothing (all labels equally probable).
    So do ece, brier, confidence and top_accuracy (ghar.metrics.calibration), of those rows alone; where they have a
    "temperature" too, fitted on other patients, so has the summary, with ece_calibrated and brier_calibrated at it.
    "format_errors" is the share of turns whose reply could not be read, "completed_decisions" of those whose decision
    was chosen behind a free reply that left it open, where there are any. Retrieval is scored against needs_retrieval
    on the rows that know it. "over_usual" is accuracy less that of the most frequent label as the answer to all,
    "reward_terms" is the mean of each weighted term, and "answers" what `ghar.metrics.answers` counts. A metric that
    rests on "too_few" patients is [value, None, None].
    Raises BadInput when there are no rows, one has no subject_id or a label is not one of the task.
    """
    index = {label: i for i, label in enumerate(labels)}
    truth = [_label_index(row, "label", index) for row in rows]
    guess = [None if row["prediction"] is None else _label_index(row, "prediction", index) for row in rows]
    draw: dict[str, Any] = {"patients": patients_of(rows), "seed": seed, "resamples": resamples}
    scores = _scores(rows, len(labels))
    metrics: dict[str, Interval] = classification(truth, guess, len(labels), scores, **draw)
    metrics |= {
        "retrieval_rate": mean_interval([row["retrieved"] for row in rows], **draw),
        "iterations": mean_interval([row["iterations"] for row in rows], **draw),
        "tokens": mean_interval([tokens_of(row) for row in rows], **draw),
        "seconds": mean_interval([row["seconds"] for row in rows], **draw),
    }
    if acted(rows):
        metrics["reward"] = mean_interval([row["reward"] for row in rows], **draw)
    metrics |= _when(rows, seed, resamples) | _calibration(rows, truth, seed, resamples)
    unreadable = [sum(not turn["format_ok"] for turn in row["turns"]) for row in rows]
    format_errors = ratio_interval(unreadable, [len(row["turns"]) for row in rows], **draw)
    if format_errors is not None:
        metrics["format_errors"] = format_errors
    metrics |= completed_decisions(rows, **draw)
    at = next((row["temperature"] for row in rows if row.get("temperature") is not None), None)
    if at is not None:
        after = _calibration(calibrated(rows, at), truth, seed, resamples)
        metrics |= {f"{name}_calibrated": after[name] for name in ("ece", "brier")}
    answers, few = answer_counts(rows), too_few(rows, labels)
    usual = [float(row["label"] == answers["usual"]) for row in rows]
    metrics["over_usual"] = paired_difference([float(row["correct"]) for row in rows], usual, **draw)
    return {
        **counts(rows),
        **({} if at is None else {"temperature": at}),
        "failures": sum(row["failure"] is not None for row in rows),
        "confusion": confusion_matrix(truth, guess, len(labels)).tolist(),
        "answers": answers,
        **({"reward_terms": terms} if (terms := _reward_terms(rows)) else {}),
        **({"too_few": few} if few else {}),
        **{name: [i.value, None, None] if name in few else i.as_list() for name, i in metrics.items()},
    }


def completed_decisions(rows: Sequence[Row], **draw: Any) -> dict[str, Interval]:
    """The share of turns whose decision was chosen behind a free reply that left it open; {} where there are none."""
    completed = [sum(turn.get("completed", False) for turn in row["turns"]) for row in rows]
    share = ratio_interval(completed, [len(row["turns"]) for row in rows], **draw) if any(completed) else None
    return {} if share is None else {"completed_decisions": share}


def _reward_terms(rows: Sequence[Row]) -> dict[str, float]:
    """Mean of each weighted reward term over all episodes: together the mean reward. {} of rows without weights."""
    names = dict.fromkeys(term for row in rows for term in row.get("weighted") or ())
    return {name: float(np.mean([(row.get("weighted") or {}).get(name, 0.0) for row in rows])) for name in names}


def _when(rows: Sequence[Row], seed: int, resamples: int) -> dict[str, Interval]:
    """Precision, recall and F1 of when to retrieve, by sample and by decision, and accuracy by the look-ups that a
    sample needs, on the rows that know."""
    cases = [row for row in rows if row["needs_retrieval"] is not None]
    decisions = [[(row["needs_retrieval"], row["retrieved"])] for row in cases]
    draw: dict[str, Any] = {"seed": seed, "resamples": resamples}
    metrics = when_to_retrieve(decisions, patients=patients_of(cases), **draw)
    steps = [row for row in cases if row.get("decisions")]
    each = when_to_retrieve([row["decisions"] for row in steps], patients=patients_of(steps), **draw)
    metrics |= {f"{name}_by_decision": value for name, value in each.items()}
    for many in sorted({row["look_ups"] for row in cases if "look_ups" in row}):
        those = [row for row in cases if row.get("look_ups") == many]
        metrics[f"accuracy_look_ups_{many}"] = mean_interval(
            [row["correct"] for row in those], patients=patients_of(those), **draw
        )
    return {name: value for name, value in metrics.items() if not name.startswith("retrieval_rate")}


def _calibration(rows: Sequence[Row], truth: Sequence[int], seed: int, resamples: int) -> dict[str, Interval]:
    """What label_probabilities are worth, on the rows that have them."""
    pairs = [(row, label) for row, label in zip(rows, truth, strict=True) if row.get("label_probabilities") is not None]
    table = np.array([row["label_probabilities"] for row, _ in pairs])
    who = patients_of([row for row, _ in pairs])
    return calibration([label for _, label in pairs], table, patients=who, seed=seed, resamples=resamples)


def eval_metrics(summary: Mapping[str, Any]) -> dict[str, float]:
    """A policy summary as keys of a metrics.jsonl row: eval/<metric>, eval/<metric>_low, eval/<metric>_high."""
    row: dict[str, float] = {}
    for name, value in summary.items():
        if isinstance(value, list) and name not in ("confusion", "over_usual"):
            parts = {f"eval/{name}": value[0], f"eval/{name}_low": value[1], f"eval/{name}_high": value[2]}
            row |= {key: number for key, number in parts.items() if number is not None}
    return row


def compare(
    a: Sequence[Row], b: Sequence[Row], metric: str = ACCURACY, /, *, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Any]:
    """Accuracy and reward of policy a minus policy b on the same samples, paired: {metric: [value, low, high]}; no
    reward where one of them is a baseline that asks no one. "same" is the share of samples that both answer alike, of
    texts with the same words.

    metric: the main one; another than accuracy is compared where all rows have it under "likeness".
    Raises BadInput when the two were not run on the same samples, and for rows without a subject_id.
    """
    pairs = paired(a, b)
    draw: dict[str, Any] = {"patients": patients_of(a), "seed": seed, "resamples": resamples}
    columns: dict[str, Callable[[Row], float]] = {ACCURACY: lambda row: row["correct"]}
    if acted(a) and acted(b):
        columns["reward"] = lambda row: row["reward"]
    if metric != ACCURACY and all(metric in row.get("likeness", {}) for row in (*a, *b)):
        columns[metric] = lambda row: row["likeness"][metric]
    same = sum(one["prediction"] is not None and _answer(one) == _answer(two) for one, two in pairs)
    differences = {
        name: paired_difference(
            [float(column(one)) for one, _ in pairs], [float(column(two)) for _, two in pairs], **draw
        ).as_list()
        for name, column in columns.items()
    }
    return {**differences, "same": same / len(pairs)}


def _answer(row: Row) -> Any:
    """The prediction, of a text that was written the text itself: its label is always the same."""
    return row["prediction"], row.get("summary")


def acted(rows: Sequence[Row]) -> bool:
    """Whether anyone was asked anything: a baseline that answers by itself has nothing to be rewarded for."""
    return any(row["turns"] for row in rows)


def _scores(rows: Sequence[Row], n_labels: int) -> np.ndarray | None:
    """Label probabilities [rows, labels]; None when no row has any."""
    scores = [row.get("label_probabilities") for row in rows]
    if all(row is None for row in scores):
        return None
    return np.array([[1 / n_labels] * n_labels if row is None else row for row in scores])


def _label_index(row: Row, key: str, index: Mapping[str, int]) -> int:
    if row[key] not in index:
        raise BadInput(f"sample {row['sample_id']} has {key} {row[key]!r}, which is not a label of the task")
    return index[row[key]]


def when_to_retrieve(
    decisions: Sequence[Sequence[Decision]], *, patients: Patients, seed: int = 0, resamples: int = RESAMPLES
) -> dict[str, Interval]:
    """Score retrieve-or-not decisions against the truth the demo world knows.

    decisions: one sequence of (needed, retrieved) per sample. Sample level: one pair each, "retrieved at least once";
    decision level: one pair per decision. Patients are resampled whole, so both levels have sound intervals.
    Returns retrieval_rate, when_precision, when_recall, when_f1; one that is undefined is left out (the precision
    of a policy that never retrieves).
    """
    counts = np.array([_counts(sample) for sample in decisions], dtype=float).reshape(-1, 4)
    if not len(counts):
        return {}

    def statistic(weights: np.ndarray) -> dict[str, np.ndarray]:
        hit, false_alarm, missed, rest = (weights @ counts).T
        return {
            "retrieval_rate": ratio(hit + false_alarm, hit + false_alarm + missed + rest),
            "when_precision": ratio(hit, hit + false_alarm),
            "when_recall": ratio(hit, hit + missed),
            "when_f1": ratio(2 * hit, 2 * hit + false_alarm + missed),
        }

    return intervals(statistic, len(counts), patients=patients, seed=seed, resamples=resamples)


def _counts(sample: Sequence[Decision]) -> tuple[int, int, int, int]:
    """Retrieved and needed, retrieved only, needed only, neither."""
    kinds = [(bool(needed), bool(retrieved)) for needed, retrieved in sample]
    return (
        kinds.count((True, True)),
        kinds.count((False, True)),
        kinds.count((True, False)),
        kinds.count((False, False)),
    )
