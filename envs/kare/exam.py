"""KARE on medical examinations (task=medqa): a question and its options stand where a record stands.

paper                           here
codes of the visits             diseases, drugs and phenotypes of the run's graph that question and options mention
visits of a patient             one, so the recency of Eq. 5 is 1 for every community
theme of the task               none, so the theme relevance of Eq. 6 is 1
nearest patients of each label  nearest training questions with their right answers in words: a letter means nothing
                                beyond its own question
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from ghar.config import EnvConfig
from ghar.data.cohort import Task
from ghar.data.tasks.question_files import MEDQA, ChoiceQuestion, read_question_set
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.kare.build import BuildInputs
from ghar.envs.kare.corpus import ConceptNames
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.graph.concepts import concept_sets
from ghar.envs.kare.graph.from_engine import QUESTIONS
from ghar.envs.kare.methods import LISTED, RULE, method_of
from ghar.envs.questions import cut_question
from ghar.envs.records import Records
from ghar.envs.system import System, Variant
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.mentions import KINDS
from ghar.ranking import DECIMALS
from ghar.retrieval.encoders import Encoder

PAIR = 2  # similar questions for each patient of each label in a prompt on patients: N = 2 and N = 4 of Table 2
MOST = 2 * PAIR
ENCODED = 256  # questions encoded together
COMPARISONS = (("kare", "no_reasoning"),)


@dataclass(frozen=True)
class MentionedConcepts:
    """What a question and its options mention, as the one visit of a record."""

    visit_id: int
    diagnoses: tuple[str, ...]
    medications: tuple[str, ...]
    procedures: tuple[str, ...] = ()


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
        drugs = tuple(topic for topic in self.topics if topic.startswith("drug "))
        others = tuple(topic for topic in self.topics if not topic.startswith("drug "))
        return (MentionedConcepts(self.subject_id, others, drugs),)

    @property
    def content(self) -> tuple[str, frozenset[str]]:
        """What two copies of one question share, in whatever order their options stand."""
        return self.question.text, frozenset(self.question.options)


@dataclass(frozen=True)
class ExamReading(KareReading):
    """neighbours: one group, the nearest training questions with their right answers, nearest first. dropped: words of
    the question."""

    def showing(self, each: int) -> ExamReading:
        """The same with `PAIR` times `each` similar questions in the prompts."""
        texts = [text for group in self.neighbours for text in group[: PAIR * each]]
        return replace(self, similar="\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)))


@dataclass(frozen=True, eq=False)
class SimilarQuestions:
    """The training questions nearest to any question of the splits. Nothing reads the answer of the one that asks."""

    splits: Splits[ExamSample]
    task: Task
    name_of: ConceptNames
    encoder: Encoder
    credentialed: bool

    def of(self, samples: Sequence[ExamSample]) -> list[tuple[ExamSample, ...]]:
        """Rank for each sample its `MOST` nearest training questions, without copies of its own question.

        Ties go to the earlier question."""
        train, nearest = self.splits.train, []
        vectors = self._trained if samples is train else self._encoded(samples)
        for sample, vector in zip(samples, vectors, strict=True):
            order = np.argsort(-np.round(self._trained @ vector, DECIMALS), kind="stable")
            others = (train[i] for i in order.tolist() if train[i].content != sample.content)
            nearest.append(tuple(other for other, _ in zip(others, range(MOST), strict=False)))
        return nearest

    def writer(self, env: EnvConfig, count: Callable[[str], int], similar: int = 1) -> ExamWriter:
        """Make an `ExamWriter` with these arguments."""
        return ExamWriter(self, env, count, similar)

    @cached_property
    def _trained(self) -> np.ndarray:
        """f32[n, d]: embeddings of the training questions with their options."""
        return self._encoded(self.splits.train)

    def _encoded(self, samples: Sequence[ExamSample]) -> np.ndarray:
        parts = [np.empty((0, self.encoder.dimension), np.float32)]
        for at in range(0, len(samples), ENCODED):
            parts.append(self.encoder.passages([sample.text for sample in samples[at : at + ENCODED]]))
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class ExamWriter:
    """Cut questions to env.history_tokens as `count` counts them. similar: as in `ghar.envs.kare.cases.Writer`."""

    near: SimilarQuestions
    env: EnvConfig
    count: Callable[[str], int]
    similar: int = 1

    def cases(self, samples: Sequence[ExamSample]) -> tuple[Case[KareReading], ...]:
        """Make a case of each question, in order."""
        answered: dict[str, str] = {}  # a training question is put into words once, however many cases show it
        return tuple(
            self._case(sample, [self._answered(other, answered) for other in others])
            for sample, others in zip(samples, self.near.of(samples), strict=True)
        )

    def _case(self, sample: ExamSample, similar: Sequence[str]) -> Case[KareReading]:
        text = self._cut(sample.question)
        dropped = len(sample.text.split()) - len(text.split())
        return Case(
            sample.sample_id, sample.subject_id, sample.subject_id, text, sample.topics, self.near.task, sample.label,
            ExamReading(neighbours=(tuple(similar),), dropped=dropped).showing(self.similar),
            credentialed=self.near.credentialed,
        )  # fmt: skip

    def _answered(self, sample: ExamSample, answered: dict[str, str]) -> str:
        """Put a training question without its options and its right answer into words."""
        if sample.sample_id not in answered:
            question, right = sample.question, sample.question.options[sample.label]
            text = self._cut(replace(question, options=())).strip()
            answered[sample.sample_id] = f"{text}\nright answer: {right}"
        return answered[sample.sample_id]

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
    if not any(sample.topics for sample in splits.train):
        raise BadInput(f"No training question of {config.data.root} mentions a node of the graph: check kg.path.")
    whole = read_question_set(Path(config.data.root), config.task).splits  # whatever task.max_train and so on leave
    every = (*whole.train, *whole.valid, *whole.test)
    coding = sorted({topic for one in every for topic in _topics(records, one.text)})
    nodes = topic_nodes(records.primekg)
    sets = concept_sets(splits.train, lambda topic: topic.partition(" ")[2], coding)
    return BuildInputs(sets, {topic: nodes[topic] for topic in coding}, {}, QUESTIONS)


def topic_nodes(graph: KnowledgeGraph) -> dict[str, int]:
    """Map what texts can mention ("disease NAME") to its node, the first of several with one name."""
    nodes: dict[str, int] = {}
    for node, (name, kind) in enumerate(zip(graph.names, graph.type.tolist(), strict=True)):
        if graph.types[kind] in KINDS:
            nodes.setdefault(f"{KINDS[graph.types[kind]]} {name}", node)
    return nodes


def names_of_topics(splits: Splits[ExamSample]) -> dict[str, str]:
    """Map each topic of the questions to the name of its node."""
    every = (*splits.train, *splits.valid, *splits.test)
    return {topic: topic.partition(" ")[2] for sample in every for topic in sample.topics}


def _topics(records: Records, question: ChoiceQuestion) -> tuple[str, ...]:
    return records.mentions.topics_in(question.shown())


def as_exam(made: System[KareReading]) -> System[KareReading]:
    """`made` without the variants that need patients, and without baselines that read codes."""
    return made.adapt(_as_exam)


def _as_exam(made: System[KareReading]) -> System[KareReading]:
    refused = exam_refusals(made.variants)
    variants = {
        name: replace(variant, title=variant.title.replace("similar patients", "similar questions"))
        for name, variant in made.variants.items()
        if name not in refused
    }
    listed = tuple(name for name in made.listed if name in variants)
    report = replace(made.report, listed=listed, comparisons=COMPARISONS, baselines=None)
    return replace(made, variants=variants, fixed={}, refused=refused, report=report)


def exam_refusals(variants: Mapping[str, Variant]) -> dict[str, str]:
    """Map each variant that needs patients to the sentence that refuses it for questions."""
    reasons = {name: reason for name, variant in variants.items() if (reason := _need_of_patients(variant))}
    others = ", ".join(name for name in LISTED if name in variants and name not in reasons)
    return {
        name: f"Variant {name} of system=kare {reason}, and task={MEDQA} has none: choose others ({others})."
        for name, reason in reasons.items()
    }


def _need_of_patients(variant: Variant) -> str:
    """Say what a variant needs patients for, "" for one that needs none."""
    if variant.who == RULE:
        return "knows the grades of generated patients"
    return "learns what speaks for each outcome of patients" if method_of(variant).learns != "no" else ""
