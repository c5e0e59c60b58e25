"""Replies of EHR-RAG's decisions: what they mean, what is a named error, and that nothing raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.envs.ehr_rag.event_replies import parse_items, parse_label_number, parse_move, parse_search


@pytest.mark.parametrize("reply, value, error", [
    ("Reasoning: stayed 9 days before.\nAnswer: 1", 1, None),
    ("answer: **0**.", 0, None),
    ("Answer: 1 (7 days or longer)", 1, None),
    ("Answer: 0\nAnswer: 1", None, "ambiguous_label"),
    ("Answer: 1\nAnswer: 1", 1, None),
    (" 1 ", 1, None),
    ("Answer: 2", None, "outside_labels"),
    ("Answer: -1", None, "outside_labels"),
    ("Answer: 0.5", None, "outside_labels"),
    ("Answer: yes", None, "outside_labels"),
    ("7", None, "outside_labels"),
    ("Answer: 0 or 1", None, "ambiguous_label"),
    ("Answer: 1 | 2", None, "ambiguous_label"),
    ("Answer: 1 & 2", None, "ambiguous_label"),
    ("Answer: 1 vs 2", None, "ambiguous_label"),
    ("Answer: 1; 2", None, "ambiguous_label"),
    ("Answer: 1–2", None, "ambiguous_label"),
    ("Answer: 1 but maybe 2", None, "ambiguous_label"),
    ("1 | 0", None, "no_answer"),
    ("I cannot answer: 1", None, "no_answer"),
    ("**Answer:** 1\nReasoning: 0 or 1", 1, None),
    ("The patient stayed 1 day.", None, "no_answer"),
    ("Answer:", None, "no_answer"),
    ("  ", None, "empty"),
])  # fmt: skip
def test_the_label_is_the_number_that_was_answered(reply: str, value: int | None, error: str | None) -> None:
    parsed = parse_label_number(reply, 2)
    assert (parsed.value, parsed.error) == (value, error)


@pytest.mark.parametrize("reply, value, error", [
    ("ENOUGH", "", None),
    ("Enough.", "", None),
    ("Query: renal function\nbecause it matters", "renal function", None),
    ('"heart failure drugs"', "heart failure drugs", None),
    ("SEPSIS ", "", "repeated"),
    ("", "", "empty"),
    (" ".join("abcdefghijklmnopq"), " ".join("abcdefghijklmno"), "too_long"),
])  # fmt: skip
def test_a_search_is_one_short_line(reply: str, value: str, error: str | None) -> None:
    parsed = parse_search(reply, ["sepsis"])
    assert (parsed.value, parsed.error) == (value, error)


@pytest.mark.parametrize("reply, value, error", [
    ('["Sodium, serum", "pH"]', (0, 2), None),
    ('Sure: ["ph", "unknown", "pH"]', (2,), None),
    ("- Sodium, serum\n- glucose", (0, 1), None),
    ("2 0 1", (2, 0), None),
    ("[1, 2]", (1, 2), None),
    ("[not json", (), "no_item"),
    ("99", (), "no_item"),
])  # fmt: skip
def test_items_by_name_or_number(reply: str, value: tuple[int, ...], error: str | None) -> None:
    parsed = parse_items(reply, ["sodium, serum", "Glucose", "pH"], 2)
    assert (parsed.value, parsed.error) == (value, error)


@pytest.mark.parametrize("reply, value, error", [
    ("Thought: I search: everything.\nSearch: renal function", ("search", "renal function"), None),
    ("Thought: clear.\nAnswer: 1", ("answer", 1), None),
    ("Thought: x. Search: a", ("search", "a"), None),
    ("Answer: 5", None, "outside_labels"),
    ("Search: sepsis", None, "repeated"),
    ("Search: ENOUGH", None, "no_action"),
    ("I cannot answer: 1", None, "no_action"),
    ("**Answer**: 1", ("answer", 1), None),
    ("Thought: I do not\n- Answer: 1", ("answer", 1), None),
    ("hm", None, "no_action"),
])  # fmt: skip
def test_a_move_is_a_search_or_an_answer(reply: str, value: object, error: str | None) -> None:
    parsed = parse_move(reply, lambda own: parse_label_number(own, 2), ["sepsis"])
    assert (parsed.value, parsed.error) == (value, error)


@given(st.text(max_size=80), st.integers(2, 4))
def test_no_reply_raises(reply: str, n: int) -> None:
    for text in (reply, f"answer:{reply}", f"[{reply}]", f"search: {reply}"):
        label = parse_label_number(text, n)
        assert (label.value is None) == (label.error is not None) and label.value in (None, *range(n))
        parse_search(text, ["a"])
        items = parse_items(text, ["a", "b"], 1)
        assert len(items.value) <= 1
        parse_move(text, lambda own: parse_label_number(own, n), ["a"])
