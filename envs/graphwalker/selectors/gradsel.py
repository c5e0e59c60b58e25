"""GradSel. Needs: gradients. Random sets judged by a first-order estimate instead of the model (Zhang et al. 2025c).

log p(true label) of validation patients (of texts the mean log p of a token of their summaries) is computed, with its
gradient in the space of input embeddings, at one random anchor set; another set's value is estimated by the first-order
change when its examples stand in the anchor's places (each cut or filled with zeros to the length of the place). An
example's score is the mean estimate of the random sets that hold it; the k best are shown to all. The original takes
several anchors; one is enough for the method to be linear.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import (
    Ask,
    ExamplePool,
    InfluenceGradients,
    Selection,
    SelectionQuery,
    Walk,
)
from ghar.envs.graphwalker.selectors.subsets import judges, mean_with, random_sets


def prepare(pool: ExamplePool) -> Generator[Ask, Any, np.ndarray]:
    sets, rows = random_sets(pool), len(pool.patients)
    anchor, everyone = sets[0], tuple(range(rows))
    value, change = 0.0, np.zeros((len(anchor), rows))
    measured = judges(pool)
    for patient in measured:
        at_anchor, slopes = yield InfluenceGradients(patient, anchor, everyone)
        value, change = value + at_anchor / len(measured), change + slopes / len(measured)
    estimates = np.array([value + sum(change[place, row] for place, row in enumerate(shots)) for shots in sets])
    return np.round(mean_with(sets, estimates, rows), 6)


def select(pool: ExamplePool, shared: np.ndarray, query: SelectionQuery) -> Walk:
    return Selection(pool.best(shared, query.allowed, pool.selector.k))
    yield  # makes it a generator
