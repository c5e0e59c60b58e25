"""CONE. Needs: log-probabilities. The k examples under which, alone, a patient surprises least (Peng et al. 2024).

As in Appendix D of GraphWalker: the ten nearest by text embedding, then the highest fall of H(x | e), each example for
itself, without regard to what the others already say. With a number of prompts to spend it looks at as many.
"""

from __future__ import annotations

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import (
    Entropy,
    ExamplePool,
    Selection,
    SelectionQuery,
    Walk,
    cosines,
    nothing_shared,
)

CANDIDATES = 10  # of the paper

prepare = nothing_shared


def select(pool: ExamplePool, shared: None, query: SelectionQuery) -> Walk:
    wanted = max(CANDIDATES, pool.selector.k) if pool.effort.each is None else pool.effort.each - 1
    rows = pool.best(cosines(pool.words, query.words), query.allowed, wanted)
    values = yield Entropy(query.patient, ((), *((row,) for row in rows)))
    gains = np.full(len(pool.patients), np.nan)
    gains[list(rows)] = np.round(values[0] - np.asarray(values[1:]), 6)
    shots = pool.best(gains, query.allowed, pool.selector.k)
    return Selection(shots, tuple(gains[list(shots)].tolist()), scored=len(rows) + 1)
