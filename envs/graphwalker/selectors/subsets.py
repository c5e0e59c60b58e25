"""Random sets of the pool, and what an example is worth from the sets it was in: shared by Influence and GradSel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import ExamplePool, Patient, Shots

MEASURED = 16  # validation patients; further prompts go into more sets, or most examples would be in none


def random_sets(pool: ExamplePool) -> tuple[Shots, ...]:
    """Sets of k rows, as many as the shared prompts let a model judge on `MEASURED` patients, and two at least.

    They are cut from shuffles of the pool one after the other, so that every row is in equally many, give or take one.
    """
    rng, k = np.random.default_rng(pool.seed), min(pool.selector.k, len(pool.patients))
    per_shuffle = len(pool.patients) // k
    sets: list[Shots] = []
    count = max(2, pool.effort.shared // (len(judges(pool)) * len(pool.labels)))
    while len(sets) < count:
        rows = rng.permutation(len(pool.patients))[: per_shuffle * k]
        sets += [tuple(part.tolist()) for part in rows.reshape(per_shuffle, k)]
    return tuple(sets[:count])


def judges(pool: ExamplePool) -> Sequence[Patient]:
    """The validation patients that sets are judged on, in their order.

    They are drawn: samples of one patient are neighbours, and the first ones of eICU are of few hospitals.
    """
    rows = np.random.default_rng([pool.seed, len(pool.patients)]).permutation(len(pool.valid))
    return tuple(pool.valid[row] for row in sorted(rows[:MEASURED].tolist()))


def mean_with(sets: Sequence[Shots], values: np.ndarray, rows: int) -> np.ndarray:
    """float64 [rows]: mean value of the sets that hold a row; NaN for a row in none."""
    return _means(_member(sets, rows), values)


def mean_without(sets: Sequence[Shots], values: np.ndarray, rows: int) -> np.ndarray:
    """float64 [rows]: mean value of the sets that do not hold a row; NaN for a row in all."""
    return _means(~_member(sets, rows), values)


def _member(sets: Sequence[Shots], rows: int) -> np.ndarray:
    member = np.zeros((len(sets), rows), bool)
    for i, shots in enumerate(sets):
        member[i, list(shots)] = True
    return member


def _means(member: np.ndarray, values: np.ndarray) -> np.ndarray:
    count = member.sum(0)
    return np.divide(values @ member, count, out=np.full(member.shape[1], np.nan), where=count > 0)
