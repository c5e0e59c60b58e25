"""Semantic-emb. Needs: nothing of the model. The k nearest by cosine of text embeddings (Appendix D, GraphWalker).

The paper embeds with Qwen3-Embedding-8B; here any encoder of `ghar.retrieval.encoders`.
"""

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
    return Selection(pool.best(cosines(pool.words, query.words), query.allowed, pool.selector.k))
    yield  # makes it a generator
