"""LMS3. Needs: hidden states and attention weights. Examples near the patient as the model sees it, and stable
(Liu et al. 2025).

Of each example e: distance |h_x - W_k' W_q h_e| and instability |W_v h_e|, with the last layer's attention weights and
the last hidden state of the case's last token; the k lowest products are taken. One that is not among the nearest 1% by
distance alone is rejected, so that a patient may get fewer examples, or none. GraphWalker's paper calls these signals
gradient-based; the authors' code computes no gradient. A case is read after the head of our prompt.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import (
    Ask,
    ExamplePool,
    HiddenStates,
    Selection,
    SelectionQuery,
    Walk,
    best,
)

NEAREST = 0.01  # share of the pool that is not rejected, the authors' lambda


def prepare(pool: ExamplePool) -> Generator[Ask, Any, tuple[np.ndarray, np.ndarray]]:
    _, asked, instability = yield HiddenStates(pool.patients)
    return asked, instability


def select(pool: ExamplePool, shared: tuple[np.ndarray, np.ndarray], query: SelectionQuery) -> Walk:
    asked, instability = shared
    h, _, _ = yield HiddenStates((query.patient,))
    distance = np.round(np.linalg.norm(asked.astype(np.float64) - h[0], axis=1), 5)
    near = best(-distance, query.allowed, math.ceil(NEAREST * query.allowed.sum()))
    ranked = pool.best(-np.round(distance * instability, 5), query.allowed, pool.selector.k)
    return Selection(tuple(row for row in ranked if row in near), scored=1)
