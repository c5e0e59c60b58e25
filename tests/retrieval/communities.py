"""Small generated communities and patients, and a slow evaluation of Eqs. 3-6 of KARE that shares no code with ours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ghar.retrieval.dgra import CommunityArrays, DgraSettings
from ghar.retrieval.patient_graph import PatientGraph


def draw_communities(rng: np.random.Generator, count: int, nodes: int, dimension: int = 3) -> CommunityArrays:
    """Some communities are alike in everything, so that ties occur; some have no summary."""
    members = [np.sort(rng.choice(nodes, rng.integers(1, min(nodes, 6) + 1), replace=False)) for _ in range(count)]
    vectors = unit(rng.integers(-2, 3, (count, dimension)).astype(np.float32))
    theme = rng.integers(-2, 3, (2, count)).astype(np.float32) / 4
    for i in range(1, count):
        if rng.random() < 0.3:
            members[i], vectors[i], theme[:, i] = members[i - 1], vectors[i - 1], theme[:, i - 1]
    return arrays_of(members, nodes, vectors, theme[0], theme[1], rng.random(count) < 0.9)


def arrays_of(members: Sequence[Sequence[int] | np.ndarray], nodes: int, *parts: np.ndarray) -> CommunityArrays:
    """Communities of the given nodes (ascending) with vectors, both theme relevances and whether they are usable."""
    start = np.cumsum([0, *map(len, members)])
    node = np.concatenate([np.empty(0, np.int32), *members]).astype(np.int32)
    return CommunityArrays.of(start, node, nodes, *parts)


def draw_patient(rng: np.random.Generator, nodes: int) -> PatientGraph:
    """Either set of nodes may be empty."""
    own = rng.permutation(nodes)[: rng.integers(0, nodes + 1)]
    cut = int(rng.integers(0, len(own) + 1))
    direct, indirect = np.sort(own[:cut]), np.sort(own[cut:])
    return PatientGraph(direct, rng.integers(0, 4, len(direct)), indirect)


def draw_context(rng: np.random.Generator, dimension: int = 3) -> np.ndarray:
    """An embedding of a base context."""
    return unit(rng.integers(-2, 3, (1, dimension)).astype(np.float32))[0]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; a zero row becomes the first axis."""
    vectors = vectors.copy()
    vectors[~vectors.any(axis=1), 0] = 1
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def slow_selection(
    own: CommunityArrays, patient: PatientGraph, context: np.ndarray, s: DgraSettings, n: int
) -> list[list[tuple[int, float]]]:
    """For each iteration of Algorithm 1, the candidates and their relevance; the selected one stands first."""
    sets = [set(own.node[a:b].tolist()) for a, b in zip(own.node_start[:-1], own.node_start[1:], strict=True)]
    direct, indirect = set(patient.direct.tolist()), set(patient.indirect.tolist())
    visit = dict(zip(patient.direct.tolist(), patient.visit.tolist(), strict=True))
    hit_count: dict[int, int] = {}
    left = [c for c in range(len(own)) if own.usable[c]]
    cosine = {c: math.fsum(np.multiply(own.vector[c], context, dtype=np.float64).tolist()) for c in left}
    rounds = []
    while len(rounds) < n and left:
        scores = {c: slow_relevance(sets[c], direct, indirect, visit, hit_count, cosine[c], own, c, s) for c in left}
        top = max(scores.values())
        if top <= 0:
            break
        chosen = min(c for c in left if scores[c] >= top - 1e-12 * top)
        rounds.append([(chosen, scores[chosen]), *((c, scores[c]) for c in left if c != chosen)])
        left.remove(chosen)
        for v in sets[chosen] & direct if s.decay_over == "direct" else sets[chosen]:
            hit_count[v] = hit_count.get(v, 0) + 1
    return rounds


def slow_relevance(
    nodes: set[int],
    direct: set[int],
    indirect: set[int],
    visit: dict[int, int],
    hit_count: dict[int, int],
    cosine: float,
    own: CommunityArrays,
    community: int,
    s: DgraSettings,
) -> float:
    """Eq. 3 with Python sets."""
    hits = len(nodes & direct) / len(direct) if direct else 0.0
    hits += s.alpha * len(nodes & indirect) / len(indirect) if indirect else 0.0
    decay = math.prod(s.beta ** hit_count.get(v, 0) for v in (nodes & direct if s.decay_over == "direct" else nodes))
    hit = nodes & direct
    recency = 1 + s.lambda_recency * sum(visit[v] for v in hit) / len(hit) if hit else 1.0
    theme = own.theme_nodes if s.theme_by == "nodes" else own.theme_summary
    values = {
        "hits": hits,
        "decay": decay,
        "coherence": 1 + s.lambda_coherence * cosine,
        "recency": recency,
        "theme": 1 + s.lambda_theme * float(theme[community]),
    }
    return math.prod(value for name, value in values.items() if name not in s.without)
