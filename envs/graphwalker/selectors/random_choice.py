"""Random. Needs: nothing. k training patients, drawn for each patient anew, by the seed and the patient's sample id."""

import zlib

import numpy as np

from ghar.envs.graphwalker.selectors.protocol import ExamplePool, Selection, SelectionQuery, Walk, nothing_shared

prepare = nothing_shared


def select(pool: ExamplePool, shared: None, query: SelectionQuery) -> Walk:
    rng = np.random.default_rng([pool.seed, zlib.crc32(query.patient.sample_id.encode())])
    rows = np.flatnonzero(query.allowed)
    return Selection(tuple(rng.choice(rows, min(pool.selector.k, len(rows)), replace=False).tolist()))
    yield  # makes it a generator
