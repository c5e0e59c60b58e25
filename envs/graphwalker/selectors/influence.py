"""Influence. Needs: log-probabilities. The k examples whose presence helps most on validation (Nguyen and Wong 2023).

I(e) = mean performance of random sets with e - mean performance of those without. Performance is the mean log p of the
true label over validation patients: their accuracy has too few values on few patients. Of texts it is the mean log p
of a token of the validation text's summary. Measured once, the same for all patients; examples that were in no set are
never chosen. Cost: sets x measured patients x labels.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import Ask, ExamplePool, Labels, Selection, SelectionQuery, Walk
from ghar.envs.graphwalker.selectors.subsets import judges, mean_with, mean_without, random_sets


def prepare(pool: ExamplePool) -> Generator[Ask, Any, np.ndarray]:
    sets, rows = random_sets(pool), len(pool.patients)
    total = np.zeros(len(sets))
    measured = judges(pool)
    for patient in measured:
        logprobs = yield Labels(patient, sets)
        total += logprobs[:, patient.label]
    total = np.round(total / len(measured), 6)
    return mean_with(sets, total, rows) - mean_without(sets, total, rows)


def select(pool: ExamplePool, shared: np.ndarray, query: SelectionQuery) -> Walk:
    return Selection(pool.best(shared, query.allowed, pool.selector.k))
    yield  # makes it a generator
