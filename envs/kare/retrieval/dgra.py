"""Dynamic graph retrieval and augmentation: which communities tell most about a patient (Eqs. 3-6, Algorithm 1, KARE).

    Relevance(C) = (|D∩C|/|D| + α |I∩C|/|I|) x Decay(C) x Coherence(C) x Recency(C) x ThemeRel(C)

Where paper and formula leave room, it is so here:

- Hits are shares of the patient's sets D (direct) and I (indirect nodes); the share of an empty set is 0.
- Decay is the product of β^H(v) over the community's direct nodes; the released code takes all of its nodes
  (`decay_over="all"`), and so H counts those, too. H(v) is how many selected communities hold v.
- Coherence is with the embedding of the base context; cosines are computed in float64.
- Recency is the mean visit index over the direct nodes that were hit, visits counted from 0 as the base context does,
  not normalised; without a direct hit the factor is 1.
- ThemeRel is the mean over the community's nodes, or, as released (`theme_by="summary"`), the summary's own maximum.
- A community with relevance 0 is never selected, so fewer than N may come back ("up to ten", Table 2).
- Relevances that differ by less than 1e-12 of the largest are equal to it, and the lowest id wins.

Exact, but not everything is computed: H only changes the decay of communities that share a node with the selected one,
and a cosine is needed only where the other factors leave a community a chance, since it is at most 1. As relevances
never grow, a pool of promising communities is enough until its best one falls below what the others could reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from ghar.envs.kare.retrieval.patient_graph import PatientKnowledgeGraph

TIE = 1e-12  # of the largest relevance; closer ones are equal to it
POOL = 512  # communities whose cosine is computed at first
LARGEST_COSINE = 1.001  # of unit vectors in single or half precision

Term = Literal["hits", "decay", "coherence", "recency", "theme"]


@dataclass(frozen=True)
class DgraSettings:
    """The defaults are the paper's (Appendix D.2). without: terms that count as 1 (Fig. 3)."""

    alpha: float = 0.1
    beta: float = 0.7
    lambda_coherence: float = 0.2
    lambda_recency: float = 0.2
    lambda_theme: float = 0.3
    decay_over: Literal["direct", "all"] = "direct"
    theme_by: Literal["nodes", "summary"] = "nodes"
    without: tuple[Term, ...] = ()


PAPER = DgraSettings()
RELEASED = DgraSettings(0.8, 0.5, 0.1, 0.1, 0.1, "all", "summary")


@dataclass(frozen=True, eq=False)
class CommunityArrays:
    """C communities over V nodes. Community c has node[node_start[c]:node_start[c+1]], ascending, each once.

    holder_start i64[V+1], holder i32: the inverted lists, node -> communities, ascending.
    vector f32[C, d]: unit embeddings of the summaries. theme_nodes, theme_summary f32[C]: Eq. 6's mean over nodes and
    the summary's maximum of the cosine to the nearest term; zeros without a theme.
    usable bool[C]: has a summary; others are never selected.
    """

    node_start: np.ndarray
    node: np.ndarray
    holder_start: np.ndarray
    holder: np.ndarray
    vector: np.ndarray
    theme_nodes: np.ndarray
    theme_summary: np.ndarray
    usable: np.ndarray

    def __len__(self) -> int:
        return len(self.usable)

    @classmethod
    def of(
        cls,
        node_start: np.ndarray,
        node: np.ndarray,
        nodes: int,
        vector: np.ndarray,
        theme_nodes: np.ndarray,
        theme_summary: np.ndarray,
        usable: np.ndarray,
    ) -> CommunityArrays:
        """With the way back from each of `nodes` nodes to its communities."""
        order = np.argsort(node, kind="stable")
        holder = np.repeat(np.arange(len(usable), dtype=np.int32), np.diff(node_start))[order]
        holder_start = np.searchsorted(node[order], np.arange(nodes + 1))
        return cls(node_start, node, holder_start, holder, vector, theme_nodes, theme_summary, usable)


@dataclass(frozen=True)
class Factors:
    """Why a community was selected: its hits and every factor of Eq. 3 at that moment. A term that is left out is 1.

    hits: |D∩C|/|D| + α |I∩C|/|I|. relevance: the product.
    """

    direct_hits: int
    indirect_hits: int
    hits: float
    decay: float
    coherence: float
    recency: float
    theme: float
    relevance: float


@dataclass(frozen=True)
class CommunitySelection:
    """Selected communities in the order of selection, and the factors of each."""

    ids: tuple[int, ...]
    factors: tuple[Factors, ...]


def select(
    communities: CommunityArrays, patient: PatientKnowledgeGraph, context: np.ndarray, settings: DgraSettings, n: int
) -> CommunitySelection:
    """Algorithm 1: at most `n` communities, each the most relevant one after the decay that the earlier ones cause.

    context: f32[d], unit embedding of the base context.
    """
    standing = _standing(communities, patient, context, settings)
    ids: list[int] = []
    factors: list[Factors] = []
    size, pool, ceiling = POOL, *standing.pool(POOL)
    while len(ids) < n:
        relevance = standing.relevance(pool)
        best = relevance.max(initial=0.0)
        if best * (1 - TIE) <= ceiling:  # somebody outside of the pool may be as good
            size *= 2
            pool, ceiling = standing.pool(size)
            continue
        if best == 0:
            break
        chosen = int(pool[relevance >= best * (1 - TIE)].min())
        ids.append(chosen)
        factors.append(standing.factors(chosen))
        standing.take(chosen)
        pool = pool[pool != chosen]
    return CommunitySelection(tuple(ids), tuple(factors))


@dataclass(eq=False)
class _Standing:
    """What is known of each community while a selection grows. All arrays are over all C communities.

    fixed: hits x recency x theme, 0 once taken. coherence: exact where `is_exact`, else the most it can be.
    """

    communities: CommunityArrays
    patient: PatientKnowledgeGraph
    context: np.ndarray
    settings: DgraSettings
    direct_hits: np.ndarray
    indirect_hits: np.ndarray
    hits: np.ndarray
    recency: np.ndarray
    theme: np.ndarray
    fixed: np.ndarray
    coherence: np.ndarray
    is_exact: np.ndarray
    spent: np.ndarray  # i64[C]: sum of H(v) over the nodes that decay

    def relevance(self, ids: np.ndarray) -> np.ndarray:
        """Eq. 3 now; an upper bound where the coherence is not known."""
        return self.fixed[ids] * self.decay(ids) * self.coherence[ids]

    def decay(self, ids: np.ndarray) -> np.ndarray:
        return np.power(self.settings.beta, self.spent[ids].astype(np.float64))

    def pool(self, size: int) -> tuple[np.ndarray, float]:
        """The `size` communities that can be the most relevant now, their coherence known, and the most that any other
        can reach; -1 when there is no other."""
        ids = np.flatnonzero(self.fixed)
        bound = self.relevance(ids)
        ceiling = -1.0
        if len(ids) > size:
            order = np.argpartition(-bound, size)
            ceiling = float(bound[order[size]])
            ids = ids[order[:size]]
        new = ids[~self.is_exact[ids]]
        if len(new):
            cosines = self.communities.vector[new].astype(np.float64) @ self.context.astype(np.float64)
            self.coherence[new] = 1 + self.settings.lambda_coherence * cosines  # Eq. 4
            self.is_exact[new] = True
        return ids, ceiling

    def take(self, chosen: int) -> None:
        """Algorithm 1: remove the community and count its nodes as hit, for all communities that hold one of them."""
        self.fixed[chosen] = 0.0
        if "decay" in self.settings.without:
            return
        own = self.communities
        nodes = own.node[own.node_start[chosen] : own.node_start[chosen + 1]]
        if self.settings.decay_over == "direct":
            nodes = nodes[np.isin(nodes, self.patient.direct)]
        np.add.at(self.spent, holders(own, nodes)[0], 1)

    def factors(self, chosen: int) -> Factors:
        here = np.array([chosen])
        return Factors(
            int(self.direct_hits[chosen]),
            int(self.indirect_hits[chosen]),
            float(self.hits[chosen]),
            float(self.decay(here)[0]),
            float(self.coherence[chosen]),
            float(self.recency[chosen]),
            float(self.theme[chosen]),
            float(self.relevance(here)[0]),
        )


def _standing(
    own: CommunityArrays, patient: PatientKnowledgeGraph, context: np.ndarray, settings: DgraSettings
) -> _Standing:
    """Before the first selection."""
    count, off = len(own), settings.without
    by_direct, lengths = holders(own, patient.direct)
    direct = np.bincount(by_direct, minlength=count)
    indirect = np.bincount(holders(own, patient.indirect)[0], minlength=count)
    hits = recency = theme = np.ones(count)
    if "hits" not in off:
        hits = direct / max(len(patient.direct), 1) + settings.alpha * (indirect / max(len(patient.indirect), 1))
    if "recency" not in off:  # Eq. 5
        visits = np.bincount(by_direct, np.repeat(patient.visit, lengths), minlength=count)
        recency = 1 + settings.lambda_recency * (visits / np.maximum(direct, 1))
    if "theme" not in off:  # Eq. 6
        relevance = own.theme_nodes if settings.theme_by == "nodes" else own.theme_summary
        theme = 1 + settings.lambda_theme * relevance.astype(np.float64)
    no_coherence = "coherence" in off
    return _Standing(
        own,
        patient,
        context,
        settings,
        direct,
        indirect,
        hits,
        recency,
        theme,
        fixed=np.where(own.usable, hits * recency * theme, 0.0),
        coherence=np.full(count, 1.0 if no_coherence else 1 + settings.lambda_coherence * LARGEST_COSINE),
        is_exact=np.full(count, no_coherence),
        spent=np.zeros(count, np.int64),
    )


def holders(own: CommunityArrays, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The communities that hold each of `nodes`, one after the other, and how many hold each."""
    start = own.holder_start[nodes]
    lengths = own.holder_start[nodes + 1] - start
    ends = np.cumsum(lengths)
    places = np.arange(ends[-1] if len(ends) else 0) + np.repeat(start - (ends - lengths), lengths)
    return own.holder[places], lengths
