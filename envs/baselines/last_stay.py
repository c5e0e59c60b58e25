"""A trivial baseline: how long the patient's last stay was, cut once.

It reads no code and no evidence. Where it comes near a system, the length of a stay is most of what the task asks for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.data.cohort import Sample
from ghar.envs.baselines.features import TrainingData, labels_of
from ghar.envs.baselines.stay_lengths import StayLengths

ASIDE = 1.0  # samples with the training shares that every group holds besides its own


@dataclass(frozen=True, eq=False)
class LastStay:
    """Label shares of training samples whose last stay was shorter than `days`, as long, or not known."""

    lengths: StayLengths
    days: float
    shares: np.ndarray  # f64[3, classes]
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        return self.shares[_groups(self.lengths(samples), self.days)]


def fit_last_stay(data: TrainingData) -> LastStay:
    """Cut where the training labels are most likely; nowhere, where no two training samples differ in length."""
    lengths = data.lengths().without_outcomes(data.train)
    days, labels = lengths(data.train), labels_of(data.train)
    cut = _cut(days, labels, data.classes)
    usual = np.bincount(labels, minlength=data.classes) / len(labels)
    counted = np.zeros((3, data.classes))
    np.add.at(counted, (_groups(days, cut), labels), 1)
    counted += ASIDE * usual
    shares = counted / counted.sum(axis=1, keepdims=True)
    about = {"days": round(cut, 4) if np.isfinite(cut) else None, "without a stay": int(np.isnan(days).sum())}
    return LastStay(lengths, cut, shares, about)


def _groups(days: np.ndarray, cut: float) -> np.ndarray:
    """i64[samples]: 0 for a shorter stay than `cut`, 1 for as long a one, 2 for none."""
    return np.where(np.isnan(days), 2, (days >= cut).astype(np.int64))


def _cut(days: np.ndarray, labels: np.ndarray, classes: int) -> float:
    """The least length of the longer group that makes the labels most likely, the shortest of equals; infinite where
    all are as long."""
    has_length = ~np.isnan(days)
    lengths, place = np.unique(days[has_length], return_inverse=True)
    if len(lengths) < 2:
        return float("inf")
    table = np.zeros((len(lengths), classes))
    np.add.at(table, (place, labels[has_length]), 1)
    shorter = table.cumsum(axis=0)
    likelihood = _log_likelihood(shorter[:-1]) + _log_likelihood(shorter[-1] - shorter[:-1])
    return float(lengths[1:][likelihood.argmax()])


def _log_likelihood(counted: np.ndarray) -> np.ndarray:
    """f64[cuts]: log likelihood of labels under their own shares. counted: f64[cuts, classes]."""
    shares = counted / counted.sum(axis=1, keepdims=True)
    return (counted * np.log(shares, where=shares > 0, out=np.zeros_like(shares))).sum(axis=1)
