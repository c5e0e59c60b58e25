"""Texts in place of patients (task=medqa, task=summary): what they mention of the run's graph stands for codes.

paper                           here
codes of the visits             diseases, drugs and phenotypes of the run's graph that the text mentions
visits of a patient             one, so the recency of Eq. 5 is 1 for every community
theme of the task               none, so the theme relevance of Eq. 6 is 1
nearest patients of each label  nearest training texts
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np

from ghar.config import EnvConfig
from ghar.data.cohort import Task
from ghar.data.tasks.samples import Text, TextSample
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case
from ghar.envs.kare.build import BuildInputs
from ghar.envs.kare.corpus import ConceptNames
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.graph.concepts import concept_sets
from ghar.envs.kare.methods import LISTED, RULE, method_of
from ghar.envs.records import Records
from ghar.envs.system import System, Variant
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.mentions import KINDS
from ghar.ranking import DECIMALS
from ghar.retrieval.encoders import Encoder

PAIR = 2  # similar texts for each patient of each label in a prompt on patients: N = 2 and N = 4 of Table 2
MOST = 2 * PAIR
ENCODED = 256  # texts encoded together
T = TypeVar("T", bound=Text)


@dataclass(frozen=True)
class MentionedConcepts:
    """What a text mentions, as the one visit of a record."""

    visit_id: int
    diagnoses: tuple[str, ...]
    medications: tuple[str, ...]
    procedures: tuple[str, ...] = ()


@dataclass(frozen=True)
class MentionSample(TextSample[T]):
    """A question or a text with what it mentions ("disease NAME"), its answer aside. visit_id: no other sample's."""

    visit_id: int
    topics: tuple[str, ...]

    @property
    def history(self) -> tuple[MentionedConcepts, ...]:
        """The one visit."""
        drugs = tuple(topic for topic in self.topics if topic.startswith("drug "))
        others = tuple(topic for topic in self.topics if not topic.startswith("drug "))
        return (MentionedConcepts(self.visit_id, others, drugs),)


@dataclass(frozen=True)
class NearestReading(KareReading):
    """neighbours: one group, the nearest training texts with their answers, nearest first. dropped: words of the
    text."""

    def showing(self, each: int) -> NearestReading:
        """The same with `PAIR` times `each` similar texts in the prompts."""
        texts = [text for group in self.neighbours for text in group[: PAIR * each]]
        return replace(self, similar="\n".join(f"{number}. {text}" for number, text in enumerate(texts, 1)))


@dataclass(frozen=True)
class TextKind(Generic[T]):
    """What differs between questions and texts to be summarised.

    shown: a text without its answer. cut: a text in at most some tokens, as the function counts them. example: a
    training text with its answer, for prompts about others, in the same budget. reading: what a case holds besides its
    text, without similar texts.
    """

    shown: Callable[[T], str]
    cut: Callable[[T, int, Callable[[str], int]], str]
    example: Callable[[MentionSample[T], int, Callable[[str], int]], str]
    reading: Callable[[T], NearestReading]


@dataclass(frozen=True, eq=False)
class NearestTexts(Generic[T]):
    """The training texts nearest to any text of the splits. Nothing reads the answer of the one that asks."""

    kind: TextKind[T]
    splits: Splits[MentionSample[T]]
    task: Task
    name_of: ConceptNames
    encoder: Encoder
    credentialed: bool

    def of(self, samples: Sequence[MentionSample[T]]) -> list[tuple[MentionSample[T], ...]]:
        """Rank for each sample its `MOST` nearest training texts among those that it may show.

        Ties go to the earlier text."""
        train, nearest = self.splits.train, []
        vectors = self._trained if samples is train else self._encoded(samples)
        for sample, vector in zip(samples, vectors, strict=True):
            order = np.argsort(-np.round(self._trained @ vector, DECIMALS), kind="stable")
            others = (train[i] for i in order.tolist() if sample.may_show(train[i]))
            nearest.append(tuple(other for other, _ in zip(others, range(MOST), strict=False)))
        return nearest

    def writer(self, env: EnvConfig, count: Callable[[str], int], similar: int = 1) -> MentionWriter[T]:
        """Make the writer of these texts with these arguments."""
        return MentionWriter(self, env, count, similar)

    @cached_property
    def _trained(self) -> np.ndarray:
        """f32[n, d]: embeddings of the training texts."""
        return self._encoded(self.splits.train)

    def _encoded(self, samples: Sequence[MentionSample[T]]) -> np.ndarray:
        parts = [np.empty((0, self.encoder.dimension), np.float32)]
        for at in range(0, len(samples), ENCODED):
            parts.append(self.encoder.passages([self.kind.shown(one.text) for one in samples[at : at + ENCODED]]))
        return np.concatenate(parts)


@dataclass(frozen=True, eq=False)
class MentionWriter(Generic[T]):
    """Cut texts to env.history_tokens as `count` counts them. similar: as in `ghar.envs.kare.cases.Writer`."""

    near: NearestTexts[T]
    env: EnvConfig
    count: Callable[[str], int]
    similar: int = 1

    def cases(self, samples: Sequence[MentionSample[T]]) -> tuple[Case[KareReading], ...]:
        """Make a case of each text, in order."""
        answered: dict[str, str] = {}  # a training text is put into words once, however many cases show it
        return tuple(
            self._case(sample, [self._answered(other, answered) for other in others])
            for sample, others in zip(samples, self.near.of(samples), strict=True)
        )

    def _case(self, sample: MentionSample[T], similar: Sequence[str]) -> Case[KareReading]:
        kind = self.near.kind
        text = kind.cut(sample.text, self.env.history_tokens, self.count)
        dropped = len(kind.shown(sample.text).split()) - len(text.split())
        reading = replace(kind.reading(sample.text), neighbours=(tuple(similar),), dropped=dropped)
        return Case(
            sample.sample_id, sample.subject_id, sample.subject_id, text, sample.topics, self.near.task, sample.label,
            reading.showing(self.similar), credentialed=self.near.credentialed,
        )  # fmt: skip

    def _answered(self, sample: MentionSample[T], answered: dict[str, str]) -> str:
        if sample.sample_id not in answered:
            answered[sample.sample_id] = self.near.kind.example(sample, self.env.history_tokens, self.count)
        return answered[sample.sample_id]


def mention_splits(
    splits: Splits[TextSample[T]], topics_of: Callable[[T], tuple[str, ...]]
) -> Splits[MentionSample[T]]:
    """Give each sample what it mentions, as `topics_of` finds it."""

    def samples(part: Sequence[TextSample[T]]) -> tuple[MentionSample[T], ...]:
        return tuple(
            MentionSample(one.sample_id, one.subject_id, one.text, one.label, next(numbers), topics_of(one.text))
            for one in part
        )

    numbers = count()
    return Splits(samples(splits.train), samples(splits.valid), samples(splits.test))


def mention_inputs(
    records: Records, train: Sequence[MentionSample[Any]], every: Iterable[Sequence[str]], prompts: str, noun: str
) -> BuildInputs:
    """Make one concept set a training text. BadInput where no training text mentions anything of the graph.

    every: topics of all texts of data.root, which are the coding system. prompts: of the expert. noun: of a text.
    """
    if not any(sample.topics for sample in train):
        root = records.config.data.root
        raise BadInput(f"No training {noun} of {root} mentions a node of the graph: check kg.path.")
    coding = sorted({topic for topics in every for topic in topics})
    nodes = topic_nodes(records.primekg)
    sets = concept_sets(train, lambda topic: topic.partition(" ")[2], coding)
    return BuildInputs(sets, {topic: nodes[topic] for topic in coding}, {}, prompts)


def topic_nodes(graph: KnowledgeGraph) -> dict[str, int]:
    """Map what texts can mention ("disease NAME") to its node, the first of several with one name."""
    nodes: dict[str, int] = {}
    for node, (name, kind) in enumerate(zip(graph.names, graph.type.tolist(), strict=True)):
        if graph.types[kind] in KINDS:
            nodes.setdefault(f"{KINDS[graph.types[kind]]} {name}", node)
    return nodes


def names_of_topics(splits: Splits[Any]) -> dict[str, str]:
    """Map each topic of the texts to the name of its node."""
    every = (*splits.train, *splits.valid, *splits.test)
    return {topic: topic.partition(" ")[2] for sample in every for topic in sample.topics}


def without_variants(made: System[KareReading], refused: Mapping[str, str], noun: str) -> System[KareReading]:
    """`made` without the refused variants, rules and baselines that read codes. noun: what stands for patients."""
    variants = {
        name: replace(variant, title=variant.title.replace("similar patients", f"similar {noun}"))
        for name, variant in made.variants.items()
        if name not in refused
    }
    listed = tuple(name for name in made.listed if name in variants)
    report = replace(made.report, listed=listed, baselines=None)
    return replace(made, variants=variants, fixed={}, refused=refused, report=report)


def refusals_of(reasons: Mapping[str, str], variants: Collection[str], task: str) -> dict[str, str]:
    """Map each variant to the sentence that refuses it for a task without what it needs. reasons: name -> its need."""
    others = ", ".join(name for name in LISTED if name in variants and name not in reasons)
    return {
        name: f"Variant {name} of system=kare {reason}, and task={task} has none: choose others ({others})."
        for name, reason in reasons.items()
    }


def need_of_patients(variant: Variant) -> str:
    """Say what a variant needs patients for, "" for one that needs none."""
    if variant.who == RULE:
        return "knows the grades of generated patients"
    return "learns what speaks for each outcome of patients" if method_of(variant).learns != "no" else ""
