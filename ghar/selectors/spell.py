"""SPELL. Needs: log-probabilities. The k examples whose own text the model finds least surprising (Gonen et al. 2023).

Mean -log p of an example's tokens, its answer included, after the head of the prompt. Scored once; all patients are
shown the same, but for those who may not see one of them, who get the next.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import numpy as np

from ghar.selectors.protocol import Ask, Perplexity, Pool, Query, Selection, Walk, best


def prepare(pool: Pool) -> Generator[Ask, Any, np.ndarray]:
    surprise = yield Perplexity(tuple(range(len(pool.patients))))
    return np.round(-np.asarray(surprise), 6)


def select(pool: Pool, shared: np.ndarray, query: Query) -> Walk:
    return Selection(best(shared, query.allowed, pool.selector.k))
    yield  # makes it a generator
