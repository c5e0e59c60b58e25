"""KARE on medical examinations (task=medqa): a question and its options stand where a record stands (`mentions.py`).

Similar questions are shown with their right answers in words: a letter means nothing beyond its own question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ghar.config import EnvConfig
from ghar.data.tasks.question_files import MEDQA, ChoiceQuestion, read_question_set
from ghar.data.tasks.splits import Splits
from ghar.envs.kare.build import BuildInputs
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.graph.from_engine import QUESTIONS
from ghar.envs.kare.mentions import (
    MentionedConcepts,
    MentionWriter,
    NearestTexts,
    mention_history,
    mention_inputs,
    need_of_patients,
    refusals_of,
    without_variants,
)
from ghar.envs.questions import cut_question
from ghar.envs.records import Records
from ghar.envs.system import System, Variant

COMPARISONS = (("kare", "no_reasoning"),)


@dataclass(frozen=True)
class ExamSample:
    """A question as a sample. topics: what it and its options mention ("disease NAME"). label: of the right option."""

    sample_id: str
    subject_id: int
    question: ChoiceQuestion
    topics: tuple[str, ...]
    label: int

    @property
    def text(self) -> str:
        """The question and its options."""
        return self.question.shown()

    @property
    def history(self) -> tuple[MentionedConcepts, ...]:
        """The one visit."""
        return mention_history(self.subject_id, self.topics)

    @property
    def content(self) -> tuple[str, frozenset[str]]:
        """What two copies of one question share, in whatever order their options stand."""
        return self.question.text, frozenset(self.question.options)

    def may_show(self, other: ExamSample) -> bool:
        """Whether the other is no copy of this question."""
        return other.content != self.content


class SimilarQuestions(NearestTexts[ExamSample]):
    """The nearest training questions, with their options."""

    def writer(self, env: EnvConfig, count: Callable[[str], int], similar: int = 1) -> ExamWriter:
        """Make an `ExamWriter` with these arguments."""
        return ExamWriter(self, env, count, similar)


class ExamWriter(MentionWriter[ExamSample]):
    """Cuts questions."""

    def cut(self, sample: ExamSample) -> str:
        """Cut the question: its first words are left out, options never."""
        return self._cut(sample.question)

    def example(self, sample: ExamSample) -> str:
        """Put a training question without its options and its right answer into words."""
        question, right = sample.question, sample.question.options[sample.label]
        return f"{self._cut(replace(question, options=())).strip()}\nright answer: {right}"

    def _cut(self, question: ChoiceQuestion) -> str:
        return cut_question(question, self.env.history_tokens, self.count)


def exam_splits(records: Records) -> Splits[ExamSample]:
    """Read the questions by split, with what they mention of the run's graph."""

    def samples(part: Sequence[Any]) -> tuple[ExamSample, ...]:
        return tuple(
            ExamSample(one.sample_id, one.subject_id, one.text, _topics(records, one.text), one.label) for one in part
        )

    splits = records.texts.splits
    return Splits(samples(splits.train), samples(splits.valid), samples(splits.test))


def exam_inputs(records: Records, splits: Splits[ExamSample]) -> BuildInputs:
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
