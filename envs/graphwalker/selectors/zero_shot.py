"""Zero-shot. Needs: nothing. The patient alone, without examples."""

from ghar.envs.graphwalker.selectors.protocol import ExamplePool, Selection, SelectionQuery, Walk, nothing_shared

prepare = nothing_shared


def select(pool: ExamplePool, shared: None, query: SelectionQuery) -> Walk:
    return Selection(())
    yield  # makes it a generator
