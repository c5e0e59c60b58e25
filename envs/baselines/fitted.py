"""The baselines by name, each fitted when it is first asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ghar.data.cohort import Sample
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


@dataclass(frozen=True, eq=False)
class FittedBaseline:
    """Fits to `data`, and answers each of `splits` as a whole. Only samples of `data` teach, whatever is asked."""

    data: TrainingData
    splits: Splits[Sample]
    _models: dict[str, BaselineModel] = field(default_factory=dict, repr=False)
    _answers: dict[str, dict[str, np.ndarray]] = field(default_factory=dict, repr=False)

    def model(self, name: str) -> BaselineModel:
        """The fitted baseline. Where training samples have one label only, all are the usual one."""
        if name not in self._models:
            alone = len(set(self.data.labels.tolist())) == 1
            self._models[name] = (fit_usual if alone else EVERY[name])(self.data)
        return self._models[name]

    def predict(self, sample: Sample, name: str) -> Prediction:
        """The most probable label, the first of equals."""
        answers = self._answers.setdefault(name, {})
        if sample.sample_id not in answers:
            self.answer(self._together(sample), name)
        shares = answers[sample.sample_id]
        return Prediction(int(shares.argmax()), probabilities=tuple(shares.tolist()))

    def answer(self, samples: Sequence[Sample], name: str) -> None:
        """Keep a baseline's answers to many samples, which are quicker together."""
        answers, shares = self._answers.setdefault(name, {}), self.model(name)(samples)
        answers |= {sample.sample_id: row for sample, row in zip(samples, shares, strict=True)}

    def _together(self, sample: Sample) -> Sequence[Sample]:
        """The split that a sample is in."""
        for part in (self.splits.test, self.splits.valid, self.splits.train):
            if any(other.sample_id == sample.sample_id for other in part):
                return part
        return (sample,)
