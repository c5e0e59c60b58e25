"""Did the policy look things up when it had to? Precision, recall and F1 of "when to retrieve"."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghar.metrics.bootstrap import RESAMPLES, Interval, Patients, intervals, ratio

Decision = tuple[bool, bool]


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
