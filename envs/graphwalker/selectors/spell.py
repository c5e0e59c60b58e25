"""SPELL. Needs: log-probabilities. The k examples whose own text the model finds least surprising (Gonen et al. 2023).

Mean -log p of an example's tokens, its answer included, after the head of the prompt. Scored once, of a random part of
the pool where it has more examples than prompts to spend; all patients are shown the same, but for those who may not
see one of them, who get the next.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import Ask, ExamplePool, Perplexity, Selection, SelectionQuery, Walk


def prepare(pool: ExamplePool) -> Generator[Ask, Any, np.ndarray]:
    n = len(pool.patients)
    rows = np.sort(np.random.default_rng(pool.seed).permutation(n)[: pool.effort.shared])
    scores = np.full(n, np.nan)
    scores[rows] = np.round(-np.asarray((yield Perplexity(tuple(rows.tolist())))), 6)
    return scores


def select(pool: ExamplePool, shared: np.ndarray, query: SelectionQuery) -> Walk:
    return Selection(pool.best(shared, query.allowed, pool.selector.k))
    yield  # makes it a generator
