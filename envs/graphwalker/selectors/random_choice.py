"""Random. Needs: nothing. k training patients, one row of each, drawn for each patient anew.

The seed and the patient's sample id decide.
"""

import zlib

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import (
    ExamplePool,
    Selection,
    SelectionQuery,
    Shots,
    Walk,
    different,
    nothing_shared,
)

prepare = nothing_shared


def select(pool: ExamplePool, shared: None, query: SelectionQuery) -> Walk:
    rng = np.random.default_rng([pool.seed, zlib.crc32(query.patient.sample_id.encode())])
    rows = np.flatnonzero(query.allowed)
    shots: Shots = ()
    while len(rows) and len(shots) < pool.selector.k:
        drawn = rng.choice(rows, min(pool.selector.k - len(shots), len(rows)), replace=False)
        shots = (*shots, *different(drawn.tolist(), pool.subjects))
        rows = rows[~np.isin(pool.subjects[rows], pool.subjects[list(shots)])]
    return Selection(shots)
    yield  # makes it a generator
