"""The baselines on examination questions (task=medqa). They read whole questions, whatever env.history_tokens is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ghar.data.tasks.splits import Splits
from ghar.envs.baselines.features import BaselineModel
from ghar.envs.baselines.fitted import FittedBaseline
from ghar.envs.baselines.fitted_system import fitted_system
from ghar.envs.baselines.options import fit_options, fit_question_options
from ghar.envs.baselines.questions import Question, QuestionData, fit_longest, fit_nearest, question_data
from ghar.envs.baselines.tables import fit_usual
from ghar.envs.case import Case
from ghar.envs.questions import plain_question_cases
from ghar.envs.records import Records
from ghar.envs.system import WORDS, System

EXAM_TITLES = {
    "usual": "Usual answer", "longest": "Longest option", "options_lr": "Regression on the options alone",
    "words_lr": "Regression on question and options", "memory": "Nearest training questions",
}  # fmt: skip
EXAM_FITS: Mapping[str, Callable[[QuestionData], BaselineModel]] = {
    "usual": fit_usual,
    "longest": fit_longest,
    "options_lr": fit_options,
    "words_lr": fit_question_options,
    "memory": fit_nearest,
}
MAIN = "words_lr"


def build_exam(records: Records) -> System[Question]:
    """All baselines of questions. BadInput where copies leave no question to learn from."""
    data = question_data(records.texts.splits, len(records.task.labels))
    fitted = FittedBaseline(data, records.texts.splits, fit_exam, without_shares=("longest",))
    return fitted_system(records, _cases(records), fitted, EXAM_TITLES, MAIN)


def fit_exam(data: QuestionData, name: str) -> BaselineModel:
    """Fit a baseline of questions."""
    return EXAM_FITS[name](data)


def _cases(records: Records) -> Splits[Case[Question]]:
    cases, samples = plain_question_cases(records, WORDS), records.texts.splits

    def reading(some: Sequence[Case], own: Sequence[Question]) -> tuple[Case[Question], ...]:
        return tuple(replace(case, reads=one) for case, one in zip(some, own, strict=True))

    return Splits(
        reading(cases.train, samples.train), reading(cases.valid, samples.valid), reading(cases.test, samples.test)
    )
