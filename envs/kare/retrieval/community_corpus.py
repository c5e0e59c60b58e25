"""Communities behind `Retrieve`: chosen for a patient by DGRA (KARE), or found by the likeness of their summaries.

No request holds or needs a label. Every passage that DGRA chose carries the value of each factor of Eq. 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ghar.envs.kare.retrieval.community_index import CommunityIndex
from ghar.envs.kare.retrieval.dgra import DgraSettings, Factors, select
from ghar.envs.kare.retrieval.patient_graph import PatientKnowledgeGraph
from ghar.episode import Evidence, Passage, Retrieve
from ghar.errors import BadInput
from ghar.retrieval.dense import DenseIndex
from ghar.retrieval.encoders import Encoder
from ghar.retrieval.partition import WHOLE_GRAPH, merge


@dataclass(frozen=True)
class SelectCommunities(Retrieve):
    """Ask for the at most `top_n` communities that tell most about the patient of `sample_id` (Algorithm 1, KARE).

    query: the base context B_p. The evidence holds `ChosenCommunity` passages in the order of selection.
    """

    sample_id: str = ""


@dataclass(frozen=True)
class ChosenCommunity(Passage):
    """A summary with the factors of its relevance at its selection; `score` is the relevance, `ident` the community."""

    factors: Factors


@dataclass(frozen=True, eq=False)
class CommunityCorpus:
    """graphs: G_p by sample id, of every sample that may ask for a selection.

    `SelectCommunities` is answered by DGRA. A plain `Retrieve` gets, for each of its partitions, the `top_n` summaries
    nearest to the query by cosine; these are numbered as in `partitions(index)`, None is all communities. So GHAR's
    episode runs over communities: `GharEpisodes(spec, partitions(index))`.
    """

    index: CommunityIndex
    encoder: Encoder
    graphs: Mapping[str, PatientKnowledgeGraph]
    settings: DgraSettings

    def __post_init__(self) -> None:
        if self.encoder.key != self.index.encoder:
            raise BadInput(
                f"The community index was made with the encoder {self.index.encoder!r} and is asked with "
                f"{self.encoder.key!r}: build the index again, or set retriever.kind back."
            )

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One evidence a request, in order; each different query is encoded once.

        ValueError for a sample without a graph and a partition that does not exist.
        """
        for request in requests:
            self._check(request)
        texts = list(dict.fromkeys(request.query for request in requests))
        vectors = dict(zip(texts, self._dense.encode(texts), strict=True)) if texts else {}
        return [
            self._select(request, vectors[request.query])
            if isinstance(request, SelectCommunities)
            else self._nearest(request, vectors[request.query])
            for request in requests
        ]

    def _check(self, request: Retrieve) -> None:
        if request.top_n < 1:
            raise ValueError(f"top_n is {request.top_n}; ask for at least 1")
        if isinstance(request, SelectCommunities):
            if request.sample_id not in self.graphs:
                raise ValueError(f"sample {request.sample_id!r} has no patient graph")
        elif unknown := [p for p in request.partitions or () if not 0 <= p < len(self.index.relations)]:
            raise ValueError(f"partition {unknown[0]} does not exist; there are {len(self.index.relations)}, from 0 on")

    def _select(self, request: SelectCommunities, context: np.ndarray) -> Evidence:
        graph, settings = self.graphs[request.sample_id], self.settings
        selection = select(self.index.arrays, graph, context, settings, request.top_n)
        passages = [
            ChosenCommunity(self.index.summaries[id], "community", WHOLE_GRAPH, factors.relevance, id, factors)
            for id, factors in zip(selection.ids, selection.factors, strict=True)
        ]
        return Evidence(tuple(passages))

    def _nearest(self, request: Retrieve, query: np.ndarray) -> Evidence:
        parts = [(WHOLE_GRAPH, self._everything)]
        if request.partitions is not None:
            parts = [(p, self.index.members(p)) for p in dict.fromkeys(request.partitions)]
        groups = []
        for partition, members in parts:
            [(ids, scores)] = self._dense.search([query], members, request.top_n)
            hits = zip(ids.tolist(), scores.tolist(), strict=True)
            groups.append([Passage(self.index.summaries[id], "community", partition, score, id) for id, score in hits])
        return merge(groups)

    @cached_property
    def _dense(self) -> DenseIndex:
        return DenseIndex(self.index.arrays.vector, self.encoder)

    @cached_property
    def _everything(self) -> np.ndarray:
        return np.flatnonzero(self.index.arrays.usable)
