"""KARE on medical examinations (task=medqa): a question and its options stand where a record stands (`mentions.py`).

Similar questions are shown with their right answers in words: a letter means nothing beyond its own question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from ghar.data.tasks.question_files import MEDQA, ChoiceQuestion, read_question_set
from ghar.data.tasks.splits import Splits
from ghar.envs.kare.build import BuildInputs
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.graph.from_engine import QUESTIONS
from ghar.envs.kare.mentions import (
    MentionSample,
    NearestReading,
    TextKind,
    mention_inputs,
    mention_splits,
    need_of_patients,
    refusals_of,
    without_variants,
)
from ghar.envs.questions import cut_question
from ghar.envs.records import Records
from ghar.envs.system import System, Variant

COMPARISONS = (("kare", "no_reasoning"),)


def _example(sample: MentionSample[ChoiceQuestion], tokens: int, count: Callable[[str], int]) -> str:
    """Put a training question without its options and its right answer into words."""
    question, right = sample.text, sample.text.options[sample.label]
    return f"{cut_question(replace(question, options=()), tokens, count).strip()}\nright answer: {right}"


EXAM = TextKind(  # the first words of a long question are left out, options never
    ChoiceQuestion.shown, cut_question, _example, lambda _: NearestReading()
)


def exam_splits(records: Records) -> Splits[MentionSample[ChoiceQuestion]]:
    """Read the questions by split, with what they and their options mention of the run's graph."""
    return mention_splits(records.texts.splits, partial(_topics, records))


def exam_inputs(records: Records, splits: Splits[MentionSample[ChoiceQuestion]]) -> BuildInputs:
    """Make one concept set a training question. The coding system is what any question of data.root mentions, whose
    right answers are not read. BadInput where no training question mentions anything of the graph."""
    config = records.config
    assert config.data.root is not None  # ghar.contradictions asks for it
    whole = read_question_set(Path(config.data.root), config.task).splits  # whatever task.max_train and so on leave
    every = (*whole.train, *whole.valid, *whole.test)
    topics = (_topics(records, one.text) for one in every)
    return mention_inputs(records, splits.train, topics, QUESTIONS, "question")


def _topics(records: Records, question: ChoiceQuestion) -> tuple[str, ...]:
    return records.mentions.topics_in(question.shown())


def as_exam(made: System[KareReading]) -> System[KareReading]:
    """`made` without the variants that need patients, and without baselines that read codes."""
    return made.adapt(_as_exam)


def _as_exam(made: System[KareReading]) -> System[KareReading]:
    own = without_variants(made, exam_refusals(made.variants), "questions")
    return replace(own, report=replace(own.report, comparisons=COMPARISONS))


def exam_refusals(variants: Mapping[str, Variant]) -> dict[str, str]:
    """Map each variant that needs patients to the sentence that refuses it for questions."""
    reasons = {name: reason for name, variant in variants.items() if (reason := need_of_patients(variant))}
    return refusals_of(reasons, variants, MEDQA)
