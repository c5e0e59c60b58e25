"""Which texts may not be shown beside each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ghar.data.tasks.samples import kin_of


@given(st.lists(st.tuples(st.integers(0, 6), st.text("ab", max_size=2)), min_size=1, max_size=12))
def test_texts_hang_together_by_subject_or_content(texts: list[tuple[int, str]]) -> None:
    """Against the lowest subject being handed on from text to text until nothing changes."""
    lowest = [subject for subject, _ in texts]
    for _ in texts:
        lowest = [
            min(lowest[j] for j, (other, copy) in enumerate(texts) if subject == other or content == copy)
            for subject, content in texts
        ]
    assert kin_of(texts) == lowest
