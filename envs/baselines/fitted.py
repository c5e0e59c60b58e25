"""The baselines by name, each fitted when it is first asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghar.data.tasks.splits import Splits
from ghar.envs.baselines.evidence import fit_boosting_evidence, fit_severities_evidence
from ghar.envs.baselines.features import BaselineModel, TrainingData
from ghar.envs.baselines.last_stay import fit_last_stay
from ghar.envs.baselines.severities import fit_severities
from ghar.envs.baselines.tables import (
    fit_boosting,
    fit_boosting_notes,
    fit_memory,
    fit_regression,
    fit_regression_notes,
    fit_usual,
)
from ghar.episode import Prediction


def _gru(data: TrainingData) -> BaselineModel:
    from ghar.envs.baselines.gru import fit_gru  # loads torch

    return fit_gru(data)


def _retain(data: TrainingData) -> BaselineModel:
    from ghar.envs.baselines.attention import fit_retain  # loads torch

    return fit_retain(data)


def _transformer(data: TrainingData) -> BaselineModel:
    from ghar.envs.baselines.attention import fit_transformer  # loads torch

    return fit_transformer(data)


FITS: Mapping[str, Callable[[TrainingData], BaselineModel]] = {
    "usual": fit_usual,
    "last_stay": fit_last_stay,
    "severities": fit_severities,
    "counts_lr": fit_regression,
    "boosting": fit_boosting,
    "memory": fit_memory,
    "gru": _gru,
}
NOTED: Mapping[str, Callable[[TrainingData], BaselineModel]] = {
    "counts_lr_notes": fit_regression_notes,
    "boosting_notes": fit_boosting_notes,
}
EVIDENCED: Mapping[str, Callable[[TrainingData], BaselineModel]] = {
    "severities_evidence": fit_severities_evidence,
    "boosting_evidence": fit_boosting_evidence,
}
NAMED: Mapping[str, Callable[[TrainingData], BaselineModel]] = {**NOTED, "retain": _retain, "transformer": _transformer}
EVERY: Mapping[str, Callable[[TrainingData], BaselineModel]] = {**FITS, **EVIDENCED, **NAMED}


def fit_visits(data: TrainingData, name: str) -> BaselineModel:
    """Fit a baseline of visits. Where training samples have one label only, all are the usual one."""
    alone = len(set(data.labels.tolist())) == 1
    return (fit_usual if alone else EVERY[name])(data)


@dataclass(frozen=True, eq=False)
class FittedBaseline:
    """Fits to `data`, and answers each of `splits` as a whole. Only samples of `data` teach, whatever is asked.

    fit: a baseline by name, given `data`. without_shares: names of those that know a label and no probability.
    """

    data: Any
    splits: Splits[Any]
    fit: Callable[[Any, str], BaselineModel] = fit_visits
    without_shares: tuple[str, ...] = ()
    _models: dict[str, BaselineModel] = field(default_factory=dict, repr=False)
    _answers: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, repr=False)

    def model(self, name: str) -> BaselineModel:
        """The fitted baseline."""
        if name not in self._models:
            self._models[name] = self.fit(self.data, name)
        return self._models[name]

    def predict(self, sample: Any, name: str) -> Prediction:
        """The most probable label, the first of equals."""
        answers = self._answers.setdefault(name, {})
        if sample.sample_id not in answers:
            self.answer(self._together(sample), name)
        shares = answers[sample.sample_id]
        probabilities = None if name in self.without_shares else tuple(shares.tolist())
        return Prediction(int(shares.argmax()), probabilities=probabilities)

    def answer(self, samples: Sequence[Any], name: str) -> None:
        """Keep a baseline's answers to many samples, which are quicker together."""
        answers, shares = self._answers.setdefault(name, {}), self.model(name)(samples)
        answers |= {sample.sample_id: row for sample, row in zip(samples, shares, strict=True)}

    def _together(self, sample: Any) -> Sequence[Any]:
        """The split that a sample is in."""
        for part in (self.splits.test, self.splits.valid, self.splits.train):
            if any(other.sample_id == sample.sample_id for other in part):
                return part
        return (sample,)
