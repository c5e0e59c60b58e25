"""Delta-KNN. Needs: log-probabilities. Examples that helped on training patients like this one (Li et al. 2025).

Delta[e, j] = p(true label of j | e) - p(true label of j), for training patients j of a fixed random subset and every e
of it but j and others of its subject; of texts p is the geometric mean of the probabilities of the tokens of j's own
summary. For a patient: of that subset the ten nearest by text embedding, ranked by their mean Delta on the other nine.
Cost: about (size of the subset)^2 x labels, once: as large a subset as the prompts that all patients share allow.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.cone import CANDIDATES
from ghar.envs.graphwalker.selectors.protocol import (
    Ask,
    ExamplePool,
    Labels,
    Selection,
    SelectionQuery,
    Walk,
    allowed_for,
    cosines,
)


def prepare(pool: ExamplePool) -> Generator[Ask, Any, np.ndarray]:
    """float64 [n, n], NaN where nothing was measured."""
    rng, n = np.random.default_rng(pool.seed), len(pool.patients)
    subset = np.sort(rng.permutation(n)[: max(2, math.isqrt(pool.effort.shared // len(pool.labels)))])
    delta = np.full((n, n), np.nan)
    for j in subset.tolist():
        patient = pool.patients[j]
        others = subset[allowed_for(patient, pool.patients)[subset]]
        probabilities = np.exp((yield Labels(patient, ((), *((int(row),) for row in others))))[:, patient.label])
        delta[others, j] = np.round(probabilities[1:] - probabilities[0], 6)
    return delta


def select(pool: ExamplePool, shared: np.ndarray, query: SelectionQuery) -> Walk:
    measured = ~np.isnan(shared).all(axis=1) & query.allowed
    near = list(pool.best(cosines(pool.words, query.words), measured, max(CANDIDATES, pool.selector.k)))
    scores = np.full(len(pool.patients), np.nan)
    for row in near:
        deltas = shared[row, near]
        scores[row] = np.nanmean(deltas) if not np.isnan(deltas).all() else 0.0
    return Selection(pool.best(scores, query.allowed, pool.selector.k))
    yield  # makes it a generator
