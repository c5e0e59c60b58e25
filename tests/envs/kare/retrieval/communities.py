"""Small generated communities and patients for DGRA."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghar.envs.kare.retrieval.dgra import CommunityArrays
from ghar.envs.kare.retrieval.patient_graph import PatientKnowledgeGraph


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


def draw_patient(rng: np.random.Generator, nodes: int) -> PatientKnowledgeGraph:
    """Either set of nodes may be empty."""
    own = rng.permutation(nodes)[: rng.integers(0, nodes + 1)]
    cut = int(rng.integers(0, len(own) + 1))
    direct, indirect = np.sort(own[:cut]), np.sort(own[cut:])
    return PatientKnowledgeGraph(direct, rng.integers(0, 4, len(direct)), indirect)


def draw_context(rng: np.random.Generator, dimension: int = 3) -> np.ndarray:
    """An embedding of a base context."""
    return unit(rng.integers(-2, 3, (1, dimension)).astype(np.float32))[0]


def unit(vectors: np.ndarray) -> np.ndarray:
    """Rows of length 1; a zero row becomes the first axis."""
    vectors = vectors.copy()
    vectors[~vectors.any(axis=1), 0] = 1
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
