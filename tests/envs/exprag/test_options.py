"""Replies to a list of options: what they choose, and the names of what is wrong with them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.envs.exprag.dischargeqa import letters
from ghar.envs.exprag.options import LETTERS, parse_options, parse_scores


@pytest.mark.parametrize("reply, answer", [
    ("answer: A", 0b1), ("A, C", 0b101), ("AC", 0b101), ("Because of B.\nanswer: A and C.", 0b101),
    ("Answer: **B**", 0b10), ("answer: A. heart failure, C. gout", 0b101), ("answer: (A), (B)", 0b11),
    ("first A was likely\nC", 0b100), ("answer: A; B;", 0b11), ("answer: A\nI am sure of it", 0b1),
    ("options A, B", 0b11), ("b", 0b10),
])  # fmt: skip
def test_readable_replies(reply: str, answer: int) -> None:
    found = parse_options(reply, 3, single=False)
    assert (found.value, found.error) == (answer, None)


@pytest.mark.parametrize("reply, single, error", [
    ("", False, "empty"), ("  ", True, "empty"), ("answer:", False, "no_option"), ("answer: none", False, "no_option"),
    ("heart failure", False, "no_option"), ("answer: D", False, "unknown_option"), ("A, X", True, "unknown_option"),
    ("answer: A, B", True, "several_options"), ("AA", False, "no_option"), ("answer: 1", False, "no_option"),
])  # fmt: skip
def test_named_errors(reply: str, single: bool, error: str) -> None:
    found = parse_options(reply, 3, single)
    assert (found.value, found.error) == (None, error)


@given(st.integers(1, 52), st.data(), st.sampled_from([", ", " ", "; ", " and "]))
def test_every_set_of_options_is_read_back(count: int, data: st.DataObject, between: str) -> None:
    answer = data.draw(st.integers(1, (1 << count) - 1))
    assert parse_options(f"answer: {between.join(letters(answer))}", count, False).value == answer


@given(st.text(max_size=40), st.booleans())
def test_nothing_raises(reply: str, single: bool) -> None:
    found = parse_options(reply, 4, single)
    assert (found.value is None) == (found.error is not None)
    assert found.value is None or 0 < found.value < 16
    assert LETTERS.startswith("ABC")


@pytest.mark.parametrize("reply, value, error", [
    ("diagnoses: 6, procedures: 0, medications: 3", 3.0, None), ("10 10 10", 10.0, None), ("1.5, 2, 2.5", 2.0, None),
    ("6/10", None, "no_scores"), ("6., 0pts 3.", 3.0, None), ("6.5.1 1 2", None, "no_scores"),
    ("11 1 2", None, "no_scores"),
    ("", None, "empty"), ("very alike", None, "no_scores"), ("6, 7", None, "no_scores"), ("1 2 3 4", None, "no_scores"),
])  # fmt: skip
def test_a_judges_scores(reply: str, value: float | None, error: str | None) -> None:
    found = parse_scores(reply)
    assert (found.value, found.error) == (value, error)
