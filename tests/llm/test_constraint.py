"""Which tokens may follow, against enumeration of the choices."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.llm.constraint import allowed_tokens

WORDS = st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple)


@settings(max_examples=100)
@given(st.lists(WORDS, min_size=1, max_size=5), st.lists(st.integers(0, 3), max_size=4))
def test_exactly_the_tokens_that_some_choice_continues_with(choices, prefix):
    begun = [c for c in choices if list(c[: len(prefix)]) == prefix]
    assert set(allowed_tokens(choices, prefix)) == {c[len(prefix)] for c in begun if len(c) > len(prefix)}


@pytest.mark.slow
@settings(max_examples=50)
@given(st.lists(WORDS, min_size=1, max_size=5))
def test_every_path_ends_at_a_choice_and_every_unbegun_choice_is_reached(choices):
    """Choices that begin another cannot end there, which is why `encode_choices` gives them an end token."""
    ends, open_paths = set(), [()]
    while open_paths:
        path = open_paths.pop()
        allowed = allowed_tokens(choices, path)
        assert list(allowed) == sorted(set(allowed))
        open_paths += [(*path, token) for token in allowed]
        ends |= set() if allowed else {path}
    assert ends == {c for c in choices if not any(o != c and o[: len(c)] == c for o in choices)}
