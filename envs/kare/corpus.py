"""What KARE looks things up in: communities chosen for a patient, communities by likeness, or abstracts (classic RAG).

One corpus answers all three, so every variant is played against the same object, and GHAR's agents can ask it too
(system=ghar system.sources=[kare]): a plain `Retrieve` finds summaries by likeness and needs no patient's graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

from ghar.envs.kare.graph.abstracts import Abstracts
from ghar.envs.kare.graph.concepts import CodedVisit
from ghar.envs.kare.graph.triples import concept_name
from ghar.envs.kare.retrieval.abstract_corpus import AbstractCorpus, index_abstracts
from ghar.envs.kare.retrieval.community_corpus import CommunityCorpus
from ghar.envs.kare.retrieval.community_index import CommunityIndex
from ghar.envs.kare.retrieval.dgra import DgraSettings, Term
from ghar.envs.kare.retrieval.patient_graph import ConceptNodes, PatientKnowledgeGraph, patient_graph
from ghar.envs.kare.settings import CONTEXTS, Settings
from ghar.episode import Evidence, Retrieve


@dataclass(frozen=True)
class SearchAbstracts(Retrieve):
    """Ask for the `top_n` abstracts nearest to the query."""


@dataclass(frozen=True)
class ConceptNames:
    """A code in words: the name of its concept, spelt as the communities spell it, so that what is read of a condition
    can be found by its name; the code itself where no one describes it.

    texts: of codes, as records have them.
    """

    texts: Mapping[str, str]

    def __call__(self, code: str) -> str:
        return self.of_all.get(code, code)

    @cached_property
    def of_all(self) -> dict[str, str]:
        """Of every code that somebody describes; a text without a letter or digit stays as it is."""
        return {code: concept_name(text) or text for code, text in self.texts.items()}


@dataclass(frozen=True, eq=False)
class PatientGraphs(Mapping[str, PatientKnowledgeGraph]):
    """G_p by sample id, each made when it is first asked for."""

    histories: Mapping[str, Sequence[CodedVisit]]
    name_of: ConceptNames
    nodes: ConceptNodes
    _made: dict[str, PatientKnowledgeGraph] = field(default_factory=dict)

    def __getitem__(self, sample_id: str) -> PatientKnowledgeGraph:
        if sample_id not in self._made:
            self._made[sample_id] = patient_graph(self.histories[sample_id], self.name_of, self.nodes)
        return self._made[sample_id]

    def __contains__(self, sample_id: object) -> bool:
        return sample_id in self.histories

    def __iter__(self) -> Iterator[str]:
        return iter(self.histories)

    def __len__(self) -> int:
        return len(self.histories)


@dataclass(frozen=True, eq=False)
class KareCorpus:
    """communities: answers `SelectCommunities` and plain requests. papers: None where there are no abstracts; they are
    indexed below `cache` when one is first looked up."""

    communities: CommunityCorpus
    papers: Abstracts | None
    cache: Path

    @property
    def index(self) -> CommunityIndex:
        return self.communities.index

    @cached_property
    def _abstracts(self) -> AbstractCorpus:
        if self.papers is None:
            raise ValueError("there are no abstracts to look up")
        return index_abstracts(self.papers, self.communities.encoder, self.cache)

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One evidence a request, in order. ValueError as `CommunityCorpus` and `AbstractCorpus` raise it."""
        by_request: list[Evidence] = [Evidence()] * len(requests)
        papers = [i for i, request in enumerate(requests) if isinstance(request, SearchAbstracts)]
        others = [i for i, request in enumerate(requests) if not isinstance(request, SearchAbstracts)]
        for corpus, places in ((self._abstracts if papers else None, papers), (self.communities, others)):
            if corpus is not None and places:
                answers = corpus.retrieve([requests[i] for i in places])
                for i, evidence in zip(places, answers, strict=True):
                    by_request[i] = evidence
        return by_request


def equations(own: Settings) -> DgraSettings:
    """The equations' numbers; variant: the released code's decay and theme relevance, or one term left out."""
    released = own.variant == "released"
    without = () if own.variant in ("paper", "released", *CONTEXTS) else (cast(Term, own.variant.removeprefix("no_")),)
    decay_over, theme_by = ("all", "summary") if released else ("direct", "nodes")
    return DgraSettings(own.alpha, own.beta, own.coherence, own.recency, own.theme, decay_over, theme_by, without)
