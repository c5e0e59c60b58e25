"""Generated walks: patients, a patient graph and an H(x | S) with diminishing gains, so that searches can be studied
and measured without a language model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ghar.envs.generators import Returned, resume
from ghar.envs.graphwalker.selectors.graph import PatientGraph, build_graph
from ghar.envs.graphwalker.selectors.protocol import Selection, Shots, best, cosines
from ghar.envs.graphwalker.selectors.search import Measure

WIDTH, TOPICS, STRENGTH = 8, 20, 0.35
K_C, K_A = 3, 3


def random_graph(rng: np.random.Generator, patients: int, k: int) -> PatientGraph:
    """Random patients and their graph."""
    vectors = rng.normal(size=(patients, WIDTH)).astype(np.float32)
    return build_graph(vectors, [str(i) for i in range(patients)], k=k, seed=0)


def anchors_near(query: np.ndarray, graph: PatientGraph) -> list[int]:
    """Nine anchors near a patient with the vector `query`: three in each of three cohorts."""
    near, everyone = cosines(graph.vectors, query), np.ones(len(graph.ids), bool)
    sizes = np.bincount(graph.cohorts) >= K_A  # so that there are nine
    cohorts = best(cosines(graph.prototypes, query), sizes, K_C)
    return [row for c in cohorts for row in best(near, everyone & (graph.cohorts == c), K_A)]


def coverage(
    rng: np.random.Generator, graph: PatientGraph, query: np.ndarray | None = None
) -> Callable[[Shots], float]:
    """H(x | S), its gains diminishing: each topic of the patient is explained by an example with a probability that
    depends on where the example lies and how telling it is; topics left unexplained add up.

    query: the patient's vector, around which its topics then lie; None: anywhere.
    """
    directions = rng.normal(size=(TOPICS, WIDTH)) + (0 if query is None else query)
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    unit = graph.vectors / np.linalg.norm(graph.vectors, axis=1, keepdims=True)
    telling = 2 * rng.random((len(graph.ids), 1))
    explains = np.clip(np.clip(unit @ directions.T, 0, 1) * STRENGTH * telling, 0, 1)
    weights = rng.random(TOPICS)
    return lambda shots: 3.0 + float((weights * np.prod(1 - explains[list(shots)], axis=0)).sum())


def play(search: Measure, entropy: Callable[[Shots], float]) -> Selection:
    """A search on a function instead of a model."""
    sets = resume(search, None)
    while not isinstance(sets, Returned):
        sets = resume(search, [entropy(shots) for shots in sets])
    return sets.value
