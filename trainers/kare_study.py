"""KARE from a configuration to what its methods need: records, communities, similar patients, cases, the corpora."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from envs.case import topics_of
from envs.kare.episode import KareCase
from ghar.config import Config, Kare
from ghar.data.cohort import Sample
from ghar.data.views.context import base_context
from ghar.data.views.visits import visit_list, visit_lists
from ghar.errors import BadInput
from ghar.retrieval.abstract_corpus import AbstractCorpus
from ghar.retrieval.community_corpus import CommunityCorpus, SelectCommunities
from ghar.retrieval.dgra import DgraSettings, Term
from ghar.retrieval.encoders import Encoder, load_encoder
from ghar.retrieval.patient_graph import patient_graph
from ghar.retrieval.similar import SimilarPatients
from trainers.kare_build import KareGraph, abstracts_of, build_communities, indexed
from trainers.records import Records, read_records

ENCODED = 64  # texts a sentence encoder sees at once
ASKED = 256  # patients whose communities are chosen together
UNCUT = 10**9  # tokens: an encoder cuts its text itself


@dataclass(frozen=True, eq=False)
class KareStudy:
    """One task on one cohort with its communities. corpus: knows every sample of the splits."""

    records: Records
    kare: Kare
    graph: KareGraph
    encoder: Encoder
    corpus: CommunityCorpus

    @property
    def config(self) -> Config:
        return self.records.config

    def cases(self, samples: Sequence[Sample], count: Callable[[str], int], similar: int = 1) -> list[KareCase]:
        """Cases whose record, and each similar patient's, fits into env.history_tokens as `count` counts.

        similar: how many of the nearest training patients of each label are shown with their outcomes (of two labels,
        see `SimilarPatients`); the query's own label is read by nobody.
        """
        task, env = self.records.task, self.config.env
        texts = visit_lists(
            samples, self.records.name_of, style=env.prompts, budget=env.history_tokens, count=count
        )
        shown = self._similar_texts(samples, count, similar) if similar else iter([""] * len(samples))
        return [
            KareCase(
                sample.sample_id, sample.subject_id, sample.visit_id, view.text, others,
                topics_of(sample, self.records.name_of), task, sample.label, view.dropped_visits + view.dropped_codes,
            )
            for sample, view, others in zip(samples, texts, shown, strict=True)
        ]  # fmt: skip

    def look_up(self, case: KareCase) -> SelectCommunities:
        """The request of Algorithm 1 for a case."""
        return SelectCommunities(case.base, None, self.config.retriever.top_n, case.sample_id)

    @cached_property
    def abstracts(self) -> AbstractCorpus:
        """The corpus of classic RAG."""
        found = abstracts_of(self.records, self.kare)
        assert found is not None  # `prepare` asks for it
        return indexed(found, self.encoder, self.config)

    @cached_property
    def _similar(self) -> SimilarPatients:
        train = self.records.splits.train
        return SimilarPatients(train, self._vectors(train))

    def _similar_texts(self, samples: Sequence[Sample], count: Callable[[str], int], each: int) -> Iterator[str]:
        env, labels = self.config.env, self.records.task.labels
        for sample, vector in zip(samples, self._vectors(samples), strict=True):
            lines = []
            for other in self._similar.find(sample.subject_id, vector, each=each):
                view = visit_list(
                    other, self.records.name_of, style=env.prompts, budget=env.history_tokens, count=count
                )
                lines.append(f"{view.text}\noutcome: {labels[other.label]}")
            yield "\n".join(lines)

    def _vectors(self, samples: Sequence[Sample]) -> np.ndarray:
        """f32[n, d]: embeddings of the base contexts without similar patients."""
        task, name_of = self.records.task, self.records.name_of
        parts = [np.empty((0, self.encoder.dimension), np.float32)]
        for at in range(0, len(samples), ASKED):
            some = samples[at : at + ASKED]
            texts = [base_context(sample, task, name_of, budget=UNCUT, count=len).text for sample in some]
            parts.append(self.encoder.passages(texts))
        return np.concatenate(parts)


def section(config: Config) -> Kare:
    """The section `kare`, which policy=kare sets."""
    if config.kare is None:
        raise BadInput("The section kare is null: choose policy=kare.")
    return config.kare


def prepare(config: Config) -> KareStudy:
    """Read the records, build or open the communities, and the graph of every patient.

    BadInput, before anything costly, for a task without a theme and for method rag without abstracts.
    """
    kare, records = section(config), read_records(config)
    if "rag" in kare.methods and abstracts_of(records, kare) is None:
        raise BadInput("Method rag looks abstracts up: set kare.abstracts to their folder, or drop rag.")
    encoder = load_encoder(config.retriever.kind, ENCODED)
    graph = build_communities(records, kare, encoder)
    splits = records.splits
    graphs = {
        sample.sample_id: patient_graph(sample.history, records.name_of, graph.nodes)
        for sample in (*splits.train, *splits.valid, *splits.test)
    }
    return KareStudy(records, kare, graph, encoder, CommunityCorpus(graph.index, encoder, graphs, settings(kare)))


def community_corpus(records: Records, kare: Kare) -> CommunityCorpus:
    """The communities for plain look-ups, as GHAR's agents make them, without any patient's graph."""
    encoder = load_encoder(records.config.retriever.kind, ENCODED)
    graph = build_communities(records, kare, encoder)
    return CommunityCorpus(graph.index, encoder, {}, settings(kare))


def settings(kare: Kare) -> DgraSettings:
    """The equations' numbers; variant: the released code's decay and theme relevance, or one term left out."""
    released = kare.variant == "released"
    without = () if kare.variant in ("paper", "released") else (cast(Term, kare.variant.removeprefix("no_")),)
    return DgraSettings(*kare.weights, "all" if released else "direct", "summary" if released else "nodes", without)
