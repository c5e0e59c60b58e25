"""Baselines on counts of codes: logistic regression, boosting, and the labels of the nearest training samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from ghar.data.cohort import Sample
from ghar.envs.baselines.features import (
    SCOPES,
    LabelledData,
    Scope,
    TrainingData,
    counts,
    encode_presence,
    labels_of,
    likelihood,
    rhythm,
    vocabulary,
)
from ghar.envs.baselines.notes import NoteFeatures, fit_words
from ghar.errors import BadInput

STRENGTHS = tuple(10.0**power for power in range(-3, 4))  # C of scikit-learn
STEPS, TOLERANCE = 1_000, 1e-3  # of its solver
NEIGHBOURS = (1, 3, 5, 10, 20, 50, 100)
PRIOR = 0.5  # what the training shares count beside neighbours whose weights are their likeness, at most 1
LEAVES = (20, 5)  # samples that a leaf of boosting holds at least: small ones can follow rare codes
AT_ONCE = 256  # samples that look for neighbours together


@dataclass(frozen=True, eq=False)
class MajorityBaseline:
    """Every sample gets the training shares of the labels."""

    shares: np.ndarray
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Any]) -> np.ndarray:
        return np.tile(self.shares, (len(samples), 1))


def fit_usual(data: LabelledData) -> MajorityBaseline:
    """The training shares."""
    return MajorityBaseline(np.bincount(data.labels, minlength=data.classes) / len(data.labels), {})


@dataclass(frozen=True, eq=False)
class Regression:
    """Logistic regression on the codes of the newest visit and on how many visits show each code, and where `words` is
    given on the words of earlier summaries."""

    place: Mapping[str, int]
    words: NoteFeatures | None
    scaler: Any
    fitted: Any
    classes: int
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        return all_shares(self.fitted, self.scaler.transform(_counted(samples, self.place, self.words)), self.classes)


def fit_regression(data: TrainingData, words: NoteFeatures | None = None) -> Regression:
    """The penalty that makes the validation labels most likely."""
    from sklearn.preprocessing import MaxAbsScaler

    place = vocabulary(data.train)
    inputs = _counted(data.train, place, words)
    scaler = MaxAbsScaler().fit(inputs)
    inputs, judged = scaler.transform(inputs), scaler.transform(_counted(data.valid, place, words))
    strength, fitted = choose_penalty(
        inputs, data.labels, lambda one: likelihood(all_shares(one, judged, data.classes), labels_of(data.valid))
    )
    about = {"C": strength, **(words.about if words else {})}
    return Regression(place, words, scaler, fitted, data.classes, about)


def choose_penalty(inputs: Any, labels: np.ndarray, score: Callable[[Any], float]) -> tuple[float, Any]:
    """Fit logistic regressions from the strongest penalty on, while their `score` grows; return the best one behind its
    C."""
    from sklearn.linear_model import LogisticRegression

    best, reached = None, -np.inf
    for strength in STRENGTHS:
        fitted = LogisticRegression(C=strength, max_iter=STEPS, tol=TOLERANCE).fit(inputs, labels)
        if (scored := score(fitted)) <= reached:
            break  # weaker penalties fit the training samples only closer
        best, reached = (strength, fitted), scored
    assert best is not None
    return best


def fit_regression_notes(data: TrainingData) -> Regression:
    """The same with the words of earlier summaries. BadInput where there are none."""
    return fit_regression(data, _words(data))


def _words(data: TrainingData) -> NoteFeatures:
    notes = data.notes()
    if notes is None:
        raise BadInput(
            "counts_lr_notes and boosting_notes read discharge summaries, and these patients come with none: set "
            "system.notes to a folder in MIMIC-IV-Note's layout, or leave them out of eval.variants."
        )
    return fit_words(notes, data.train, data.settings.words)


def _counted(samples: Sequence[Sample], place: Mapping[str, int], words: NoteFeatures | None) -> csr_array:
    own = [] if words is None else [words(samples)]
    return csr_array(hstack([*(counts(samples, place, scope) for scope in SCOPES), *own]))


def all_shares(fitted: Any, inputs: Any, classes: int) -> np.ndarray:
    """Probabilities of all classes, 0 for one that no training sample has."""
    shares = np.zeros((inputs.shape[0], classes))
    shares[:, fitted.classes_] = fitted.predict_proba(inputs)
    return shares


@dataclass(frozen=True, eq=False)
class Boosting:
    """Gradient boosting of trees on the most frequent codes, the number of visits, the days between the last two, and
    where `words` is given the words of earlier summaries."""

    place: Mapping[str, int]
    words: NoteFeatures | None
    fitted: Any
    classes: int
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        return self.shares(samples)

    def shares(self, samples: Sequence[Sample], further: np.ndarray | None = None) -> np.ndarray:
        """f64[samples, classes]: label probabilities; further: columns that it was fitted with besides."""
        return all_shares(self.fitted, _dense(samples, self.place, self.words, further), self.classes)


def fit_boosting(
    data: TrainingData,
    words: NoteFeatures | None = None,
    further: Callable[[Sequence[Sample]], np.ndarray] | None = None,
) -> Boosting:
    """The rounds with the lowest validation loss, with the leaves that make the validation labels most likely.

    further: columns of samples besides, f64[samples, columns].
    """
    own, seen = data.settings, set(data.labels.tolist())
    place = vocabulary(data.train, own.codes)
    judged = [sample for sample in data.valid if sample.label in seen]  # scikit-learn takes no label it has not seen
    parts = data.train, data.valid, judged
    train, valid, stopped = (None if further is None else further(part) for part in parts)
    held_out = {"X_val": _dense(judged, place, words, stopped), "y_val": labels_of(judged)} if judged else {}
    inputs, best, reached = _dense(data.train, place, words, train), None, -np.inf
    for leaf in LEAVES:
        fitted = _boosted(data, leaf, inputs, held_out)
        about = {"rounds": int(fitted.n_iter_), "leaf": leaf, **(words.about if words else {})}
        model = Boosting(place, words, fitted, data.classes, about)
        score = likelihood(model.shares(data.valid, valid), labels_of(data.valid))
        if score > reached:
            best, reached = model, score
    assert best is not None
    return best


def _boosted(data: TrainingData, leaf: int, inputs: np.ndarray, held_out: Mapping[str, np.ndarray]) -> Any:
    """Boosting of the rounds up to the lowest loss on `held_out`; of all rounds where that is empty.

    scikit-learn keeps the rounds in which it waited for a lower loss. The same rounds are fitted again without them.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    make = partial(HistGradientBoostingClassifier, min_samples_leaf=leaf, random_state=data.seed)
    stop: dict[str, Any] = {"early_stopping": bool(held_out)}  # scikit-learn's types allow a word alone
    fitted = make(max_iter=data.settings.rounds, n_iter_no_change=data.settings.patience, **stop)
    fitted.fit(inputs, data.labels, **held_out)
    if not held_out:
        return fitted
    best = max(1, int(np.argmax(fitted.validation_score_)))  # its first one is before any round
    stop["early_stopping"] = False
    return make(max_iter=best, **stop).fit(inputs, data.labels)


def fit_boosting_notes(data: TrainingData) -> Boosting:
    """The same with the words of earlier summaries. BadInput where there are none."""
    return fit_boosting(data, _words(data))


def _dense(
    samples: Sequence[Sample], place: Mapping[str, int], words: NoteFeatures | None, further: np.ndarray | None = None
) -> np.ndarray:
    tables = [counts(samples, place, scope).toarray() for scope in SCOPES]
    own = [] if words is None else [words(samples).toarray()]
    more = [] if further is None else [further]
    return np.hstack([*tables, rhythm(samples), *own, *more]).astype(np.float32)


@dataclass(frozen=True, eq=False)
class NearestSamples:
    """The labels of the training samples whose codes are most alike (Jaccard), weighted by likeness.

    codes: 1 where a training sample shows a code. shares: of the labels over all training samples.
    """

    place: Mapping[str, int]
    scope: Scope
    codes: csr_array
    labels: np.ndarray
    shares: np.ndarray
    neighbours: int
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        return self.by_neighbours(samples, (self.neighbours,))[0]

    def by_neighbours(self, samples: Sequence[Sample], numbers: Sequence[int]) -> np.ndarray:
        """f64[numbers, samples, classes]: label probabilities by how many neighbours vote."""
        votes = np.zeros((len(numbers), len(samples), len(self.shares)))
        asked, sizes = encode_presence(samples, self.place, self.scope), self.codes.sum(axis=1)
        own = np.array([self._size(sample) for sample in samples], dtype=float)
        for start in range(0, len(samples), AT_ONCE):
            some = slice(start, start + AT_ONCE)
            both = (asked[some] @ self.codes.T).toarray()
            alike = both / np.maximum(own[some, None] + sizes - both, 1.0)
            nearest = np.argsort(-alike, axis=1, kind="stable")[:, : max(numbers)]
            weight = np.take_along_axis(alike, nearest, axis=1)
            label_votes = np.eye(len(self.shares))[self.labels[nearest]] * weight[:, :, None]
            for i, number in enumerate(numbers):
                votes[i, some] = label_votes[:, :number].sum(axis=1)
        votes += PRIOR * self.shares
        return votes / votes.sum(axis=2, keepdims=True)

    def _size(self, sample: Sample) -> int:
        """How many different codes a sample shows, those that no training sample shows too."""
        visits = sample.history if self.scope == "all" else sample.history[-1:]
        return len({code for visit in visits for code in (*visit.diagnoses, *visit.procedures, *visit.medications)})


def fit_memory(data: TrainingData) -> NearestSamples:
    """The scope and the number of neighbours that make the validation labels most likely."""
    place, best, reached = vocabulary(data.train), None, -np.inf
    for scope in SCOPES:
        codes = encode_presence(data.train, place, scope)
        model = NearestSamples(place, scope, codes, data.labels, fit_usual(data).shares, 1, {})
        for number, shares in zip(NEIGHBOURS, model.by_neighbours(data.valid, NEIGHBOURS), strict=True):
            score = likelihood(shares, labels_of(data.valid))
            if score > reached:
                about = {"visits": scope, "neighbours": number}
                best, reached = replace(model, neighbours=number, about=about), score
    assert best is not None
    return best
