"""Zero-shot. Needs: nothing. The patient alone, without examples."""

from ghar.envs.graphwalker.selectors.protocol import Pool, Query, Selection, Walk, nothing_shared

prepare = nothing_shared


def select(pool: Pool, shared: None, query: Query) -> Walk:
    return Selection(())
    yield  # makes it a generator
