"""Dynamic graph retrieval and augmentation: which communities tell most about a patient (Eqs. 3-6, Algorithm 1, KARE).

    Relevance(C) = (|D∩C|/|D| + α |I∩C|/|I|) x Decay(C) x Coherence(C) x Recency(C) x ThemeRel(C)

Where paper and formula leave room, it is so here:

- Hits are shares of the patient's sets D (direct) and I (indirect nodes); the share of an empty set is 0.
- Decay is the product of β^H(v) over the community's direct nodes; the released code takes all of its nodes
  (`decay_over="all"`), and so H counts those, too. H(v) is how many selected communities hold v.
- Coherence is with the embedding of the base context; a cosine is a float64 sum of float32 products.
- Recency is the mean visit index over the direct nodes that were hit, visits counted from 0 as the base context does,
  not normalised; without a direct hit the factor is 1.
- ThemeRel is the mean over the community's nodes, or, as released (`theme_by="summary"`), the summary's own maximum.
- A community with relevance 0 tells nothing and is never selected, so fewer than N may come back ("up to ten", Table 2).
- Relevances that agree to 1e-12 of their size are equal, and the lowest id wins.

Exact, but not everything is computed: H only changes the decay of communities that share a node with the selected one,
and a cosine is needed only where the other factors leave a community a chance, since it is at most 1. As relevances
never grow, a pool of promising communities is enough until its best one falls below what the others could reach.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

Term = Literal["hits", "decay", "coherence", "recency", "theme"]
TERMS: tuple[Term, ...] = ("hits", "decay", "coherence", "recency", "theme")


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

    holder_start i64[V+1], holder i32: the same the other way round, node -> communities, ascending.
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


@dataclass(frozen=True, eq=False)
class PatientNodes:
    """V_direct i64[D], their visit index i64[D], V_indirect i64[I], disjoint, each node once; context f32[d]: unit
    embedding of the base context."""

    direct: np.ndarray
    visit: np.ndarray
    indirect: np.ndarray
    context: np.ndarray


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
class Selection:
    """Selected communities in the order of selection, and the factors of each."""

    ids: tuple[int, ...]
    factors: tuple[Factors, ...]
