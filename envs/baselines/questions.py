"""Examination questions as training data, and two baselines of them: the longest option, and the answers to the nearest
training questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np

from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.data.tasks.samples import TextSample, kin_of
from ghar.data.tasks.splits import Splits
from ghar.envs.baselines.features import labels_of, likelihood
from ghar.envs.baselines.tables import AT_ONCE, NEIGHBOURS, fit_usual
from ghar.errors import BadInput
from ghar.retrieval.matching import fit_tfidf

Question = TextSample[ChoiceQuestion]
PRIORS = (1.0, 0.1, 0.01)  # what the training shares of the letters count beside the answers of nearest questions


@dataclass(frozen=True, eq=False)
class QuestionData:
    """Questions that a baseline may learn from: it is fitted to `train`, and `valid` chooses between fits.

    kin: subject of each question, test questions too -> number that copies of one question share.
    """

    train: Sequence[Question]
    valid: Sequence[Question]
    classes: int
    kin: Mapping[int, int]

    @property
    def labels(self) -> np.ndarray:
        """i64[train]"""
        return labels_of(self.train)


def question_data(splits: Splits[Question], classes: int) -> QuestionData:
    """Leave out training questions that are copies of validation or test questions, and validation questions that are
    copies of test questions. BadInput where none is left.

    An evaluation of the validation questions (task.max_test=0) has them in both places; they stay.
    """
    every = (*splits.train, *splits.valid, *splits.test)
    numbers = kin_of([(one.subject_id, one.text.content) for one in every])
    kin = {one.subject_id: number for one, number in zip(every, numbers, strict=True)}
    own = {one.subject_id for one in splits.test}
    tested = {kin[subject] for subject in own}
    judged = {kin[one.subject_id] for one in splits.valid} | tested
    train = tuple(one for one in splits.train if kin[one.subject_id] not in judged)
    valid = tuple(one for one in splits.valid if kin[one.subject_id] not in tested or one.subject_id in own)
    for part, some in {"training": train, "validation": valid}.items():
        if not some:
            raise BadInput(
                f"data.root has no {part} question that is no copy of a later split's: give more questions, or another "
                "task.split."
            )
    return QuestionData(train, valid, classes, kin)


@dataclass(frozen=True)
class LongestOption:
    """The option with the most characters, the first of equals."""

    classes: int
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Question]) -> np.ndarray:
        """f64[questions, classes]: 1 for the longest option; it knows no probability."""
        longest = [max(range(len(one.text.options)), key=lambda i: len(one.text.options[i])) for one in samples]
        return np.eye(self.classes)[longest]


def fit_longest(data: QuestionData) -> LongestOption:
    """Nothing is fitted."""
    return LongestOption(data.classes, {})


@dataclass(frozen=True, eq=False)
class NearestQuestions:
    """The options that are most like the right answers to the training questions whose texts are most alike.

    Likeness is the cosine of TF-IDF vectors. An option has the sum over neighbours of both likenesses, of the questions
    and of the option with the right answer; its own kin is no neighbour of a question. texts, answers: vectors of
    training questions and of their right options. shares: of the letters in training, which count `prior`.
    """

    data: QuestionData
    vectorizer: Any
    texts: Any
    answers: Any
    shares: np.ndarray
    neighbours: int = 1
    prior: float = 1.0

    @property
    def about(self) -> Mapping[str, Any]:
        """What validation chose."""
        return {"neighbours": self.neighbours, "prior": self.prior}

    def __call__(self, samples: Sequence[Question]) -> np.ndarray:
        return self.with_prior(self.votes(samples, (self.neighbours,))[0], self.prior)

    def with_prior(self, votes: np.ndarray, prior: float) -> np.ndarray:
        """f64[questions, classes]: label probabilities."""
        mixed = votes + prior * self.shares
        return mixed / mixed.sum(axis=1, keepdims=True)

    def votes(self, samples: Sequence[Question], numbers: Sequence[int]) -> np.ndarray:
        """f64[numbers, questions, classes]: sums of likeness by how many neighbours vote."""
        votes = np.zeros((len(numbers), len(samples), self.data.classes))
        kin = np.array([self.data.kin[one.subject_id] for one in self.data.train])
        for start in range(0, len(samples), AT_ONCE):
            some = samples[start : start + AT_ONCE]
            own = np.array([self.data.kin[one.subject_id] for one in some])
            alike = (self.vectorizer.transform(one.text.text for one in some) @ self.texts.T).toarray()
            alike[own[:, None] == kin] = 0.0
            nearest = np.argsort(-alike, axis=1, kind="stable")[:, : max(numbers)]
            for i, (one, row) in enumerate(zip(some, nearest, strict=True), start):
                likeness = (self.vectorizer.transform(one.text.options) @ self.answers[row].T).toarray()
                sums = (likeness * alike[i - start, row]).cumsum(axis=1)
                for j, number in enumerate(numbers):
                    votes[j, i, : len(one.text.options)] = sums[:, min(number, len(row)) - 1]
        return votes


def fit_nearest(data: QuestionData) -> NearestQuestions:
    """The number of neighbours and the prior that make the validation labels most likely."""
    vectorizer, _ = fit_tfidf(one.text.shown() for one in data.train)
    texts = vectorizer.transform(one.text.text for one in data.train)
    answers = vectorizer.transform(one.text.options[one.label] for one in data.train)
    model = NearestQuestions(data, vectorizer, texts, answers, fit_usual(data).shares)
    votes, labels = dict(zip(NEIGHBOURS, model.votes(data.valid, NEIGHBOURS), strict=True)), labels_of(data.valid)
    number, prior = max(
        product(NEIGHBOURS, PRIORS), key=lambda pair: likelihood(model.with_prior(votes[pair[0]], pair[1]), labels)
    )
    return replace(model, neighbours=number, prior=prior)
