"""Which texts may not be shown beside each other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ghar.envs.exprag.text_corpus import kin_of


@given(st.lists(st.tuples(st.integers(0, 6), st.text("ab", max_size=2)), min_size=1, max_size=12))
def test_texts_hang_together_by_subject_or_content(texts: list[tuple[int, str]]) -> None:
    """Against the connected components of all pairs."""
    pairs = [
        (i, j)
        for i, (subject, content) in enumerate(texts)
        for j, (other, copy) in enumerate(texts)
        if subject == other or content == copy
    ]
    rows, columns = np.array(pairs).T
    graph = coo_matrix((np.ones(len(pairs)), (rows, columns)), shape=(len(texts), len(texts)))
    _, part = connected_components(graph, directed=False)
    lowest = {group: min(texts[i][0] for i in np.flatnonzero(part == group)) for group in set(part.tolist())}
    assert kin_of(texts) == [lowest[group] for group in part.tolist()]
