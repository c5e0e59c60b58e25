"""Logistic regression over the options of a question: by their own wording, or with the question's words as well."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.envs.baselines.features import labels_of, likelihood
from ghar.envs.baselines.questions import Question, QuestionData
from ghar.envs.baselines.tables import choose_penalty
from ghar.errors import BadInput
from ghar.kg.names import FILLERS
from ghar.retrieval.matching import fit_tfidf
from ghar.retrieval.sparse import words


@dataclass(frozen=True, eq=False)
class OptionFeatures:
    """Encodes each option: its wording, its letter, TF-IDF of its words, and where `reads_question` what it shares with
    the question."""

    vectorizer: Any
    classes: int
    reads_question: bool

    def __call__(self, samples: Sequence[Question]) -> csr_array:
        """f64[options of all questions, columns]"""
        questions = [one.text for one in samples]
        numbers = np.concatenate([self._numbers(question) for question in questions])
        vectors = self.vectorizer.transform(option for question in questions for option in question.options)
        return csr_array(hstack([csr_array(numbers), vectors]))

    def _numbers(self, question: ChoiceQuestion) -> np.ndarray:
        """f64[options, columns]: numbers less their mean over the question's options, and the letter."""
        columns = wording(question.options)
        if self.reads_question:
            text, own = self.vectorizer.transform([question.text]), self.vectorizer.transform(question.options)
            columns = np.column_stack([columns, shared_words(question), (own @ text.T).toarray()])
        return np.hstack([columns - columns.mean(axis=0), np.eye(len(question.options), self.classes)])


def wording(options: Sequence[str]) -> np.ndarray:
    """f64[options, 6]: log of characters and of words, longest, shortest, with a digit, mean Jaccard similarity of its
    words to those of the other options."""
    sizes, sets = np.array([len(option) for option in options]), [frozenset(words(option)) for option in options]
    alike = [
        sum(len(own & other) / max(len(own | other), 1) for j, other in enumerate(sets) if j != i)
        for i, own in enumerate(sets)
    ]
    return np.column_stack([
        np.log1p(sizes), np.log1p([len(words(option)) for option in options]), sizes == sizes.max(),
        sizes == sizes.min(), [any(map(str.isdigit, option)) for option in options],
        np.array(alike) / max(len(options) - 1, 1),
    ]).astype(float)  # fmt: skip


def shared_words(question: ChoiceQuestion) -> np.ndarray:
    """f64[options, 2]: log of how many words an option shares with the question, and the share of its words."""
    text = frozenset(words(question.text)) - FILLERS
    own = [frozenset(words(option)) - FILLERS for option in question.options]
    both = np.array([len(one & text) for one in own])
    return np.column_stack([np.log1p(both), both / np.array([max(len(one), 1) for one in own])])


@dataclass(frozen=True, eq=False)
class OptionRegression:
    """Chooses among a question's options by one regression of an option being right.

    Given that one option of a question is right, each is so in proportion to its odds.
    """

    features: OptionFeatures
    fitted: Any
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Question]) -> np.ndarray:
        scores = self.fitted.decision_function(self.features(samples))
        return choice_shares(scores, [len(one.text.options) for one in samples], self.features.classes)


def choice_shares(scores: np.ndarray, counts: Sequence[int], classes: int) -> np.ndarray:
    """f64[questions, classes]: odds exp(`scores`) of the options of all questions, as shares of each question's odds; 0
    for a letter without an option. counts: options of each question, at least one."""
    table, own = np.full((len(counts), classes), -np.inf), np.arange(classes) < np.array(counts)[:, None]
    table[own] = scores
    odds = np.exp(table - table.max(axis=1, keepdims=True))
    return odds / odds.sum(axis=1, keepdims=True)


def fit_options(data: QuestionData, reads_question: bool = False) -> OptionRegression:
    """The penalty that makes the validation labels most likely. BadInput where no option has a word."""
    texts = [one.text.shown() if reads_question else _options_text(one) for one in data.train]
    if not any(map(words, texts)):
        raise BadInput("No option of the training questions has a word: leave options_lr out of eval.variants.")
    vectorizer, _ = fit_tfidf(texts)
    features = OptionFeatures(vectorizer, data.classes, reads_question)
    right = np.array([i == one.label for one in data.train for i in range(len(one.text.options))])
    judged, labels = features(data.valid), labels_of(data.valid)
    shares = partial(choice_shares, counts=[len(one.text.options) for one in data.valid], classes=data.classes)
    strength, fitted = choose_penalty(
        features(data.train), right, lambda one: likelihood(shares(one.decision_function(judged)), labels)
    )
    return OptionRegression(features, fitted, {"C": strength})


def fit_question_options(data: QuestionData) -> OptionRegression:
    """The same with what options share with their question."""
    return fit_options(data, reads_question=True)


def _options_text(question: Question) -> str:
    return "\n".join(question.text.options)
