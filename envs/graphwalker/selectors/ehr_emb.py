"""EHR-emb. Needs: nothing of the model. The k nearest by cosine of the EHR encoder's vectors (GraphWalker, D)."""

from ghar.envs.graphwalker.selectors.protocol import Pool, Query, Selection, Walk, best, cosines, nothing_shared

prepare = nothing_shared


def select(pool: Pool, shared: None, query: Query) -> Walk:
    return Selection(best(cosines(pool.vectors, query.vector), query.allowed, pool.selector.k))
    yield  # makes it a generator
