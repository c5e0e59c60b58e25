"""EHR-emb. Needs: nothing of the model. The k nearest by cosine of the EHR encoder's vectors (GraphWalker, D)."""

from ghar.envs.graphwalker.selectors.protocol import (
    ExamplePool,
    Selection,
    SelectionQuery,
    Walk,
    cosines,
    nothing_shared,
)

prepare = nothing_shared


def select(pool: ExamplePool, shared: None, query: SelectionQuery) -> Walk:
    return Selection(pool.best(cosines(pool.vectors, query.vector), query.allowed, pool.selector.k))
    yield  # makes it a generator
