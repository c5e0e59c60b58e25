"""Numbers of DischargeQA from episode rows: a question is right when exactly the right options are chosen; precision,
recall and F1 are of sets of options, per question, and then their mean. An unreadable answer chooses nothing: all 0."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ghar.errors import BadInput
from ghar.metrics.bootstrap import mean_interval, paired_difference, ratio_interval
from ghar.metrics.policy import completed_decisions
from ghar.metrics.rows import Row, counts, paired, patients_of


def question_summary(rows: Sequence[Row], *, seed: int, resamples: int) -> dict[str, Any]:
    """{metric: [value, low, high]}, with "n", "patients", "failures" and "errors": how often which format error was
    met; intervals by drawing patients (each row's subject_id) with all their questions.

    rows: episode rows with `scores` (see `set_scores`) and `errors`, the format errors of their replies. Raises
    BadInput without rows and for one without a subject_id.
    """
    if not rows:
        raise BadInput("there are no questions to evaluate: use a split that is not empty")
    draw: dict[str, Any] = {"patients": patients_of(rows), "seed": seed, "resamples": resamples}
    columns = {
        "accuracy": [float(row["correct"]) for row in rows],
        **{name: [row["scores"][name] for row in rows] for name in ("precision", "recall", "f1")},
        "retrieval_rate": [float(row["retrieved"]) for row in rows],
        "tokens": [float(row["prompt_tokens"] + row["completion_tokens"]) for row in rows],
        "seconds": [row["seconds"] for row in rows],
    }
    summary: dict[str, Any] = {name: mean_interval(values, **draw).as_list() for name, values in columns.items()}
    errors = ratio_interval([len(row["errors"]) for row in rows], [len(row["turns"]) for row in rows], **draw)
    if errors is not None:
        summary["format_errors"] = errors.as_list()
    summary |= {name: share.as_list() for name, share in completed_decisions(rows, **draw).items()}
    named = Counter(name for row in rows for name in row["errors"])
    failures = sum(row["failure"] is not None for row in rows)
    return {**counts(rows), "failures": failures, "errors": dict(sorted(named.items())), **summary}


def compare_questions(a: Sequence[Row], b: Sequence[Row], *, seed: int, resamples: int) -> dict[str, list[float]]:
    """Accuracy and F1 of policy a minus policy b on the same questions, paired: {metric: [value, low, high]}.

    Raises BadInput when the two were not asked the same questions, and for rows without a subject_id.
    """
    pairs = paired(a, b)
    draw: dict[str, Any] = {"patients": patients_of(a), "seed": seed, "resamples": resamples}
    right = [(float(one["correct"]), float(two["correct"])) for one, two in pairs]
    f1 = [(one["scores"]["f1"], two["scores"]["f1"]) for one, two in pairs]
    return {
        name: paired_difference([one for one, _ in both], [two for _, two in both], **draw).as_list()
        for name, both in (("accuracy", right), ("f1", f1))
    }
