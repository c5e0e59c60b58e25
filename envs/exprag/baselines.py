"""What DischargeQA's questions are worth without experience: the usual answer, the options alone, the patient alone.

usual             the answer that most training questions have
options_only      a regression on what an option says, fitted to the options of training questions
background_only   the same on every pair of a code of the stay and a piece of the option: all that memory could hold

They look nothing up, and could win where the options, or the patient, give the answer away.

Label-only SFT is a control of the warm-up, which imitates a rule with experience: the same base model learns to answer
from the record, without experience and without a teacher.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ghar.data.sections import sentences
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.exprag.dischargeqa import DischargeQuestion, letters
from ghar.envs.exprag.episode import own_pieces
from ghar.envs.system import Example, SftExamples
from ghar.episode import Act, EpisodeGenerator
from ghar.retrieval.reports import ReportQuery
from ghar.retrieval.sparse import words

FEATURES = 2**18  # of the hashed pairs
STEPS = 1_000  # of the solver at most
HALF = 0.5
Features = Callable[[DischargeQuestion, str], list[str]]
Play = Callable[[Any], EpisodeGenerator]  # a case's episode without experience: one question
RightReply = Callable[[Act, Case[Any]], str]


@dataclass(frozen=True)
class MajorityAnswer:
    """The most frequent answer of training questions, the first of equal ones; of many options those there are."""

    train: Sequence[DischargeQuestion]

    def __call__(self, act: Act) -> str:
        return in_words(self._fitting(act.facts["question"]))

    def _fitting(self, question: DischargeQuestion) -> int:
        """Of questions with as many options; the first option where there are none."""
        return self._most.get(len(question.options), 1)

    @cached_property
    def _most(self) -> dict[int, int]:
        counts: dict[int, Counter[int]] = {}
        for question in self.train:
            counts.setdefault(len(question.options), Counter())[question.answer] += 1
        return {size: min(c, key=lambda answer: (-c[answer], answer)) for size, c in counts.items()}


@dataclass(frozen=True, eq=False)
class OptionRegression:
    """A logistic regression that says of each option whether it is right; fitted when it is first asked."""

    train: Sequence[DischargeQuestion]
    features: Features
    _model: list[Any] = field(default_factory=list)

    def __call__(self, act: Act) -> str:
        return in_words(self.chosen(act.facts["question"]))

    def chosen(self, question: DischargeQuestion) -> int:
        """The most probable option, or all that are more probable than not, at least one."""
        shares = self._probabilities([question])
        best = 1 << int(shares.argmax())
        if question.single:
            return best
        return sum(1 << i for i, share in enumerate(shares) if share > HALF) or best

    def _probabilities(self, questions: Sequence[DischargeQuestion]) -> np.ndarray:
        if not self._model:
            self._model.append(self._fit())
        return self._model[0].predict_proba(self._matrix(questions))[:, 1]

    def _fit(self) -> Any:
        from sklearn.linear_model import LogisticRegression

        right = [question.answer >> i & 1 for question in self.train for i in range(len(question.options))]
        return LogisticRegression(max_iter=STEPS).fit(self._matrix(self.train), right)

    def _matrix(self, questions: Sequence[DischargeQuestion]) -> Any:
        from sklearn.feature_extraction import FeatureHasher

        features = [self.features(question, option) for question in questions for option in question.options]
        return FeatureHasher(FEATURES, input_type="string").transform(features)


def of_option(question: DischargeQuestion, option: str) -> list[str]:
    """What an option says: its pieces, its words, and how many of its pieces other options have."""
    pieces = sentences(option)
    others = [set(sentences(other)) for other in question.options if other != option]
    common = sum(piece in other for piece in pieces for other in others)
    return [*pieces, *words(option), f"{common} in common", f"{len(pieces)} pieces"]


@dataclass(frozen=True)
class OptionFeatures:
    """An option, and its pieces with each code of the stay. queries: what is known of a stay when it asks."""

    queries: Mapping[Any, ReportQuery]

    def __call__(self, question: DischargeQuestion, option: str) -> list[str]:
        codes = [code for kind in self.queries[question.visit_id].codes for code in kind]
        pairs = [f"{code} with {piece}" for code in codes for piece in sentences(option)]
        return [*of_option(question, option), *pairs]


def in_words(answer: int) -> str:
    """A set of options as a reply."""
    return ", ".join(letters(answer))


def label_pairs(play: Play, cases: Splits[Case[Any]], reply: RightReply, epochs: int) -> SftExamples:
    """Each training sample's question and the right reply; validation samples choose the weights that are kept."""

    def pairs(some: Sequence[Case[Any]]) -> tuple[Example, ...]:
        acts: list[Act] = [next(play(case)) for case in some]
        return tuple(Example(act.prompt, reply(act, case), act.choices) for act, case in zip(acts, some, strict=True))

    return SftExamples(pairs(cases.train), pairs(cases.valid), epochs=epochs)


def right_label(act: Act, case: Case[Any]) -> str:
    """The label, as the rule writes it."""
    return f"answer: {case.task.labels[case.label]}"


def right_options(act: Act, case: Case[Any]) -> str:
    """The right options of a question; where a reply may quote, the first piece of the right one."""
    if not act.choices:
        return in_words(case.label)
    return next(piece for piece in own_pieces(case.reads)[case.label.bit_length() - 1] if piece in act.choices)
