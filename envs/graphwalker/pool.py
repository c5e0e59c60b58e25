"""From cases to the pool that demonstration selectors choose from: encoded once, cut to whoever reads the prompts."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Generic

import numpy as np

from ghar.data.cohort import Task
from ghar.data.tasks.splits import S, Splits
from ghar.envs.graphwalker.encoders.embeddings import Embeddings, embed_texts
from ghar.envs.graphwalker.selectors.cohorts import Method
from ghar.envs.graphwalker.selectors.graph import PatientGraph, build_graph
from ghar.envs.graphwalker.selectors.prompt import Prompt, make_prompt
from ghar.envs.graphwalker.selectors.protocol import (
    Effort,
    ExamplePool,
    Name,
    Patient,
    SelectionQuery,
    Selector,
    allowed_for,
    check_pool,
    fingerprint,
)
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.system import DemoPretraining, Reader
from ghar.retrieval.encoders import CODES
from ghar.retrieval.sparse import SPARSE

# variant -> clustering; Leiden otherwise
METHODS: Mapping[str, Method] = {"louvain": "louvain", "released": "released"}
BOUNDLESS = 10**6  # tokens, where no one knows the context


class WordTokenizer:
    """Stands for a tokenizer before there is one: a word is a token, its id a hash."""

    eos_token_id = 1

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        return [2 + zlib.crc32(word.encode()) % 50_000 for word in text.split()]


@dataclass(frozen=True, eq=False)
class EncodedCases(Generic[S]):
    """Cases of one task, split and encoded, before anyone's tokenizer. Readers share it.

    head: what stands before any case. embeddings, words: vectors of all samples by the graph's encoder and by the text
    encoder, whose name is `text_model`. piece: a sample as pieces of a prompt. reads: `Case.reads`: what
    ReAct may look at, or a clinical text with its summary, for rewards. render: samples as text, for a tokenizer.
    selectors: those that can be put to these cases. reply: tokens that a summary may have; None where labels are asked.
    times: with data.earlier, when each sample is predicted, and when its outcome is known, in microseconds.
    audit: what test samples show against the outcome's time, as summary.json holds it; null where the house says it.
    practice: of the demo's base model, None leaves it untrained. ceilings: of samples by their patients, None where
    no one knows. left_out: samples that a rule left out, by rule.
    """

    settings: Settings
    seed: int
    task: Task
    head: str
    splits: Splits[S]
    embeddings: Embeddings
    words: Embeddings
    text_model: str
    piece: Callable[[Prompt, Reader, S], Patient]
    render: Callable[[S], str]
    reads: Callable[[S], Any]
    selectors: tuple[Name, ...]
    generated: bool
    credentialed: bool
    times: Mapping[str, tuple[int, int]] | None = None
    audit: Mapping[str, Any] | None = None
    practice: DemoPretraining | None = None
    ceilings: Callable[[Sequence[int]], Mapping[str, float] | None] = lambda patients: None
    left_out: Mapping[str, int] = field(default_factory=dict)
    reply: int | None = None

    @cached_property
    def pool_ids(self) -> tuple[str, ...]:
        """Sample ids of the pool's rows: samples whose outcomes are known, which all encoders take first."""
        return self.embeddings.sample_ids[: len(self.splits.known)]

    @cached_property
    def graph(self) -> PatientGraph:
        """The graph of the pool's patients, built when a walk first asks for it."""
        method = METHODS.get(self.settings.variant, "leiden")
        vectors = self.embeddings.of(self.pool_ids)
        return build_graph(vectors, self.pool_ids, k=self.settings.k_g, method=method, seed=self.seed)

    def texts(self) -> list[str]:
        """What prompts are made of, of the pool's patients alone: to train a tokenizer on."""
        return [self.head, *(self.render(sample) for sample in self.splits.known)]

    @property
    def usual(self) -> int:
        """The most frequent label of the training samples, the lower one among equals."""
        labels = [sample.label for sample in self.splits.train]
        return max(sorted(set(labels)), key=labels.count)


@dataclass(frozen=True, eq=False)
class SelectionPool:
    """Everyone that a selector can be asked about, cut to one reader's context. by_split: patients; those of "train"
    and "pool" may be shown to others. reader: without its engine."""

    material: EncodedCases[Any]
    prompt: Prompt
    by_split: Mapping[str, tuple[Patient, ...]]
    reader: Reader

    @cached_property
    def candidates(self) -> tuple[Patient, ...]:
        """The pool: patients who may be shown to others."""
        return (*self.by_split["train"], *self.by_split["pool"])

    @cached_property
    def patients(self) -> dict[str, Patient]:
        """Patient of each sample id."""
        return {patient.sample_id: patient for part in self.by_split.values() for patient in part}

    @cached_property
    def _pool(self) -> ExamplePool:
        material, own = self.material, self.material.settings
        task, ids = material.task, material.pool_ids
        return ExamplePool(
            self.candidates,
            self.by_split["valid"],
            task.labels,
            task.question,
            material.embeddings.of(ids),
            material.words.of(ids),
            partial(embed_texts, model=material.text_model),
            None,
            Selector("zero_shot", own.k, own.k_g, own.k_c, own.k_a, own.variant, own.utility),
            Effort(own.effort, (own.effort or own.usual_effort) * len(self.by_split["test"])),
            material.seed,
            material.reply is not None,
            self._fits,
        )

    def _fits(self, prompt: str, tokens: int) -> bool:
        return self.reader.context is None or self.reader.count(prompt) + tokens <= self.reader.context

    def pool(self, name: Name) -> ExamplePool:
        """Whose cases may be shown, for the selector of that name."""
        selector = replace(self._pool.selector, name=name)
        return replace(self._pool, selector=selector, graph=self.material.graph if name == "graphwalker" else None)

    def query(self, sample_id: str) -> SelectionQuery:
        """A patient to choose for; a text without its summary, which no selector may read."""
        patient, material = self.patients[sample_id], self.material
        if material.reply is not None:
            patient = replace(patient, example=(), answer="", answer_ids=())
        [vector], [words] = material.embeddings.of([sample_id]), material.words.of([sample_id])
        return SelectionQuery(patient, vector, words, self.allowed(patient))

    def allowed(self, patient: Patient) -> np.ndarray:
        """bool [n]: who of the pool may be shown to a patient."""
        pool, times = self.candidates, self.material.times
        allowed = allowed_for(patient, pool)
        if times is None:
            return allowed
        asked = times[patient.sample_id][0]
        return allowed & np.array([times[other.sample_id][1] <= asked for other in pool])

    def others(self, patient: Patient) -> int:
        """How many others may be shown to a patient, of each one row at most."""
        rows = np.flatnonzero(self.allowed(patient))
        return len({self.candidates[row].subject_id for row in rows})

    def enough(self, patient: Patient) -> bool:
        """Whether k may be shown; with data.earlier the first patients have too few, and are shown none."""
        return self.others(patient) >= self.material.settings.k

    def without(self) -> int:
        """Test patients who are shown no example, because fewer than k outcomes were known when they were asked about.

        BadInput where that holds for all of them, and, without data.earlier, where it holds for anyone at all.
        """
        pool, test, k = self.candidates, self.by_split["test"], self.material.settings.k
        if self.material.times is not None:
            few = [patient for patient in test if not self.enough(patient)]
            if few and len(few) == len(test):
                check_pool(self.others(few[0]), k, few[0])
            return len(few)
        subjects = len({patient.subject_id for patient in pool})
        copies = Counter(map(fingerprint, pool))
        for patient in self.patients.values():
            if subjects - 1 - copies[fingerprint(patient)] < k:  # counted exactly
                check_pool(self.others(patient), k, patient)
        return 0


def cut_to(material: EncodedCases[Any], reader: Reader, behind: int = 0) -> SelectionPool:
    """The cases as pieces of the reader's tokens. BadInput for a context too small for k examples and the patient.

    behind: tokens that an episode says and hears after the patient, besides the answer."""
    tokenizer = reader.tokenizer if reader.tokenizer is not None else WordTokenizer()
    settings = material.settings
    bounds, chat = (reader.context or BOUNDLESS, settings.k), settings.variant != "released"
    prompt = make_prompt(material.task, material.head, tokenizer, *bounds, chat, material.reply, behind)

    def patients(samples: Sequence[Any]) -> tuple[Patient, ...]:
        return tuple(material.piece(prompt, reader, sample) for sample in samples)

    parts = material.splits
    by_split = {"train": parts.train, "pool": parts.pool, "valid": parts.valid, "test": parts.test}
    cut = {name: patients(part) for name, part in by_split.items()}
    return SelectionPool(material, prompt, cut, replace(reader, engine=None))


def dense(kind: str) -> str:
    """The text encoder for a retriever of that kind: those of `SPARSE` make no vectors of texts, and codes, which
    another system asks for where it is shown examples, is fitted to events."""
    return "hashing" if kind in (*SPARSE, CODES) else kind


def everyone(splits: Splits[S]) -> Iterator[S]:
    """All samples, those whose outcomes may be shown first."""
    yield from (*splits.known, *splits.valid, *splits.test)
