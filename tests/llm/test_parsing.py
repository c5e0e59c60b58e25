"""Whatever a model says is read as a value or as a named error; nothing raises."""

import re
import time
from itertools import pairwise

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ghar.envs.ehr_rag.event_replies import parse_items, parse_label_number, parse_move, parse_search
from ghar.envs.exprag.options import parse_options, parse_scores
from ghar.episode import as_text
from ghar.llm.parsing import (
    PathChoice,
    parse_choice,
    parse_label,
    parse_path_ids,
    parse_queries,
    parse_query,
    parse_summary,
)

STAYS = tuple(str(i) for i in range(10))
READERS = {
    "label": lambda reply: parse_label(reply, STAYS),
    "yes or no": lambda reply: parse_label(reply, ("no", "yes")),
    "paths": lambda reply: parse_path_ids(reply, 10, 3),
    "queries": lambda reply: parse_queries(reply, 3),
    "choice": lambda reply: parse_choice(reply, ("yes", "no")),
    "number": lambda reply: parse_label_number(reply, 2),
    "search": lambda reply: parse_search(reply, ["a"]),
    "items": lambda reply: parse_items(reply, ["a", "b"], 2),
    "move": lambda reply: parse_move(reply, lambda text: parse_label_number(text, 2), ["a"]),
    "options": lambda reply: parse_options(reply, 5, single=False),
    "scores": parse_scores,
}
NAMED = {"empty", "no_label", "ambiguous_label", "no_ids", "no_valid_id", "denied_ids", "no_query", "not_a_choice"}
ANYTHING = st.one_of(
    st.text(max_size=60),
    st.lists(st.sampled_from(["answer:", "yes", "no", "0", "7", "12", " ", "\n", ";", "1.", "-", "*", "٣", "²"])).map(
        "".join
    ),
)


@settings(max_examples=200)
@given(ANYTHING, st.integers(1, 40), st.integers(1, 5))
@example("9" * 5000, 10, 3)
@example("\x00\ud800", 10, 3)
@example("", 1, 1)
def test_any_text_is_a_value_or_a_named_error(reply, n_paths, limit):
    for labels in (STAYS, ("no", "yes")):
        label = parse_label(reply, labels)
        assert (label.error is None and label.value in range(len(labels))) or (
            label.value is None and label.error in NAMED
        )
    paths = parse_path_ids(reply, n_paths, limit)
    ids = paths.value.ids
    assert len(set(ids)) == len(ids) <= limit and all(0 <= i < n_paths for i in ids)
    assert (paths.error is None) == bool(ids) and paths.error in {
        None, "no_ids", "no_valid_id", "denied_ids", "counted_ids"
    }  # fmt: skip
    queries = parse_queries(reply, limit)
    assert len(set(queries.value)) == len(queries.value) <= limit
    assert all(q == q.strip() != "" and not re.search(r"[;\n]", q) for q in queries.value)
    assert queries.error == (None if queries.value else "no_query")
    assert parse_query(reply).value == (queries.value[0] if queries.value else "")
    choice = parse_choice(reply, ("yes", "no"))
    assert choice.value in ("yes", "no") if choice.error is None else choice.error in NAMED
    assert (as_text(reply).error is None) == bool(as_text(reply).value)


@pytest.mark.parametrize("reply, value, error", [
    ("4", 4, None),
    (" 4.\n", 4, None),
    ("**answer: 4**", 4, None),
    ("It is 3 days on paper, but 7 codes.\nAnswer: 4", 4, None),
    ("answer: 3\nOn reflection, answer: 4", 4, None),
    ("answer: class 4, a long stay", 4, None),
    ("answer: 3\n\nBecause 2 drugs", 3, None),
    ("answer: 3 because of 2 drugs", 3, None),
    ("answer: 3, 2 drugs speak for it", 3, None),
    ("answer: 3 (2 to 4 days)", 3, None),
    ("answer: 4 - a long stay", 4, None),
    ("Answer:\n**4**", 4, None),
    ("The final answer is: <4>.", 4, None),
    ('{"reason": "7 codes", "answer": 4, "confidence": 0.9}', 4, None),
    ("class 4", 4, None),
    ("4 or 5", None, "ambiguous_label"),
    ("4\n5", None, "ambiguous_label"),
    ("answer: 4 to 5", None, "ambiguous_label"),
    ("answer: 4 | 5", None, "ambiguous_label"),
    ("answer: 4–5", None, "ambiguous_label"),
    ("answer: 4, 5", None, "ambiguous_label"),
    ("answer: 4 (or 5)", None, "ambiguous_label"),
    ("answer: 4 (5)", None, "ambiguous_label"),
    ("answer: 4, no wait, 5 I think", None, "ambiguous_label"),
    ("answer: 14", None, "no_label"),
    ("answer: -1", None, "no_label"),
    ("answer: 4.5", None, "no_label"),
    ("answer: >4", None, "no_label"),
    ("answer: 4?", None, "no_label"),
    ("answer: not 4", None, "no_label"),
    ("answer: 3 days", None, "no_label"),
    ("I cannot answer: 3", None, "no_label"),
    ("I cannot answer: the stay was 3 days", None, "no_label"),
    ("I would say 4", None, "no_label"),
    ("The patient has 3 prior visits", None, "no_label"),
    ("answer:", None, "no_label"),
    ("soon", None, "no_label"),
    (" \n\t", None, "empty"),
])  # fmt: skip
def test_labels(reply, value, error):
    found = parse_label(reply, STAYS)
    assert (found.value, found.error) == (value, error)


@pytest.mark.parametrize("reply, value, error", [
    ("Yes.", 1, None),
    ("no", 0, None),
    ("answer: yes, no doubt", 1, None),
    ("answer: yes. There is no doubt.", 1, None),
    ("Answer: no - nothing speaks for it", 0, None),
    ("First I thought answer: yes. No.\nAnswer: no", 0, None),
    ('{"answer": "yes"}', 1, None),
    ('{"answer": {"yes": false}}', None, "no_label"),
    ("answer: not yes", None, "no_label"),
    ("answer: no doubt the patient dies", None, "no_label"),
    ("answer: yes/no", None, "ambiguous_label"),
    ("answer: yes, but no", None, "ambiguous_label"),
    ("There is no history of", None, "no_label"),
    ("No data available", None, "no_label"),
    ("I have no idea", None, "no_label"),
    ("There is no doubt: the patient dies", None, "no_label"),
])  # fmt: skip
def test_words_that_are_labels_name_none_in_prose(reply, value, error):
    found = parse_label(reply, ("no", "yes"))
    assert (found.value, found.error) == (value, error)


def test_labels_of_several_words():
    labels = ("heart rate", "heart rate variability", "a+b")
    for i, label in enumerate(labels):
        assert parse_label(label.title(), labels).value == parse_label(f"Answer: **{label}**.", labels).value == i
    assert parse_label("answer: heart rate or a+b", labels).error == "ambiguous_label"
    assert parse_label("answer: 1", ()).error == "no_label"


PROSE = st.lists(st.sampled_from([*STAYS, "no", "yes", "the", "patient", "has", "days", "visits", "of"]), min_size=2)


@given(PROSE, st.sampled_from(["no", "yes"]), st.sampled_from(STAYS))
def test_prose_is_never_a_label_and_an_answer_after_it_is(words, label, stay):
    text = " ".join(words)
    assert parse_label(text, STAYS).value is parse_label(text, ("no", "yes")).value is None
    assert parse_label(f"{text}\nanswer: {label}\n{text}", ("no", "yes")).value == ("no", "yes").index(label)
    assert parse_label(f"{text}\nAnswer: {stay}.\n{text}", STAYS).value == int(stay)


PIECES = (
    "\n", " ", "\t", "\x0b", "\u2028", "*", "*\n", "**Answer", "- ", "-;", ";", "a;", "1", "1.", "1 ", "1.1", "9", "0 ",
    "answer", "answer ", "answer:", "answer:\n", "answer: 1 ", "answer: 1, ", "answer: (", "not answer: ", "search",
    "search ", "search:\n", "[", "]", '["a"', "[]", '"', "(", "A ", "AB", "and ", "option ", "no ", "yes ", ".", "é",
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("piece", PIECES)
def test_a_hostile_reply_takes_no_time(piece):
    """100,000 characters of one shape, in 10 ms or less on an idle machine; a quadratic reader takes minutes.

    Best of two: a garbage collection of what other tests left is not the reader's."""
    count = 100_000 // len(piece)
    replies = [piece * count, f"answer: 1{piece * count}", f"{piece * count}answer: 1", f"1.{piece * count}x"]
    for name, read in READERS.items():
        seconds = []
        for reply in replies:
            tries = []
            for _ in range(2):
                start = time.thread_time()
                read(reply)
                tries.append(time.thread_time() - start)
            seconds.append(min(tries))
        assert max(seconds) < 0.25, (name, seconds)


def test_a_label_inside_a_word_is_no_label():
    assert parse_label("answer: unknown, nobody can say", ("no", "yes")).error == "no_label"
    assert parse_label("Answer: YES", ("no", "yes")).value == 1


@pytest.mark.parametrize("label", STAYS)
def test_every_label_is_read_back(label):
    assert parse_label(label, STAYS).value == parse_label(f"answer: {label}", STAYS).value == int(label)


@pytest.mark.parametrize("reply, choice, error", [
    ("1 2 3", PathChoice((1, 2, 3)), None),
    ("3, 3 and 12", PathChoice((3,), errors=1, duplicates=1), None),
    ("1 2 3 4 5", PathChoice((1, 2, 3), errors=2), None),
    ("[0]", PathChoice((0,)), None),
    ("12 12", PathChoice((), errors=2), "no_valid_id"),
    ("none of them", PathChoice(()), "no_ids"),
    ("0000000000005", PathChoice((5,)), None),
    ("1" * 6000, PathChoice((), errors=1), "no_valid_id"),
    ("1. 7 drug - gene\n2. 9 gene - disease", PathChoice((7, 9)), None),
    ("The best are:\n1) 4\n2) 4\n3) 8", PathChoice((4, 8), duplicates=1), None),
    ("1. 0", PathChoice((0,)), None),
    ("1. drug - gene\n2. gene - disease", PathChoice((1, 2)), None),  # an entry's own number, as the prompt shows it
    ("3. drug 2\n7. gene 1", PathChoice((3, 2, 7), errors=1), None),
    ("0 1 2 3 4 5 6 7 8", PathChoice(()), "counted_ids"),
    ("0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11", PathChoice(()), "counted_ids"),
])  # fmt: skip
def test_meta_path_ids(reply, choice, error):
    found = parse_path_ids(reply, n_paths=10, max_paths=3)
    assert (found.value, found.error) == (choice, error)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 14), max_size=8), st.integers(1, 12), st.integers(1, 4))
def test_meta_path_ids_against_a_plain_count(numbers, n_paths, most):
    """Eq. 8's counts: every number is a correct id, an erroneous one or a repetition, and none is counted twice."""
    found = parse_path_ids(" ".join(map(str, numbers)), n_paths, most).value
    assume(len(numbers) <= 5 or any(b != a + 1 for a, b in pairwise(numbers)))
    ids: list[int] = []
    errors = repeated = 0
    for number in numbers:
        if number in ids:
            repeated += 1
        elif number < n_paths and len(ids) < most:
            ids.append(number)
        else:
            errors += 1
    assert found == PathChoice(tuple(ids), errors, repeated)
    assert len(found.ids) + found.errors + found.duplicates == len(numbers)


@pytest.mark.parametrize("reply, queries", [
    ("drug a; disease b", ("drug a", "disease b")),
    ("1. drug a\n2) disease b\n", ("drug a", "disease b")),
    ("- a\n* b\n- a\n\n;;", ("a", "b")),
    ("1.what now?", ("what now?",)),
    ("2.5 mg of warfarin a day: safe?", ("2.5 mg of warfarin a day: safe?",)),
    ("a; b; c; d", ("a", "b", "c")),
    (" ; \n-\n", ()),
])  # fmt: skip
def test_queries(reply, queries):
    assert parse_queries(reply, 3).value == queries


@settings(max_examples=50)
@given(st.lists(st.from_regex(r"[a-z][a-z ]{0,10}[a-z]", fullmatch=True), unique=True, min_size=1, max_size=5))
def test_joined_queries_come_back_in_order(queries):
    for joined in ("; ".join(queries), "\n".join(f"{i}. {q}" for i, q in enumerate(queries, 1))):
        found = parse_queries(joined, 3).value
        assert found == tuple(queries[:3])
        assert all(queries.index(a) < queries.index(b) for a, b in pairwise(found))


def test_many_sub_queries_are_read_up_to_the_limit():
    many = [f"q{i}" for i in range(1000)]
    assert parse_queries(";".join(many), 3).value == ("q0", "q1", "q2")
    assert parse_queries(";".join(many), 2000).value == tuple(many)


def test_a_sub_query_has_a_letter():
    """Replies of SmolLM2 on eICU."""
    assert parse_queries("1. 1.\n2. 2.\n3. 3.", 3).error == "no_query"
    assert parse_queries("1. 1.\n2. Is INR high?", 3).value == ("Is INR high?",)
    assert parse_queries("ゼロ", 1).value == ("ゼロ",)


def test_choices():
    assert parse_choice(" Yes\n", ("yes", "no")).value == "yes"
    assert parse_choice("yes please", ("yes", "no")).error == "not_a_choice"


UNCLEAR = (
    "no (though yes is more likely)", "no, though yes is more likely", "no, although yes cannot be excluded",
    "no; yes would be likelier", "no. Though yes is more likely.", "no (leaning yes)", "no (60% yes)", "no (50/50)",
    "no, just as likely yes", "no, doubtful", "no (yes if the drug is stopped)", "yes, 30% likely", "yes (30% likely)",
    "yes - with 40% likelihood", "yes, only 10% likely", "yes, 20% chance", "yes, p = 0.2", "yes (p=0.2)", "yes at 35%",
    "yes (less likely than no)", "yes, unlikely", "yes, but unlikely", "yes, not likely", "yes, improbable",
    "yes, with low probability", "yes (low chance)", "yes, confidence: low", "yes, low confidence", "yes, toss-up",
    "yes, 50-50", "yes, coin flip", "yes, hard to say", "yes, too close to call", "yes, about 1 in 4",
    "yes, one in five", "yes, 3 out of 10", "yes (as likely as not)", "yes, equally likely as no", "yes, questionable",
    "yes, against my view",
)
CLEAR = (
    "yes", "no", "yes, 80% likely", "yes (80% likely)", "no, no doubt", "yes, because no infection was found",
    "no (no signs of sepsis)", "yes, unlikely to survive", "no, readmission is unlikely", "yes (high risk)",
    "no (low risk)", "no, low risk of death", "yes, very likely", "yes, as the patient is not stable",
    "no (30% risk of readmission)", "yes, with 70% probability", "no, low probability of death", "no (unlikely)",
    "no, not likely",
)


@pytest.mark.parametrize("said", UNCLEAR)
def test_hedged_answers_are_unreadable(said):
    assert parse_label(f"answer: {said}", ("no", "yes")).value is None


@pytest.mark.parametrize("said", CLEAR)
def test_answers_beside_them_are_read(said):
    assert parse_label(f"answer: {said}", ("no", "yes")).value == int(said.startswith("yes"))


@pytest.mark.parametrize("reply", [
    "None of paths 1-5 apply", "none of 1-5", "Neither 1 nor 2", "No paths: 1, 2 do not fit", "1, 2 but not 3",
    "all except 4", "Nothing applies (1-5)", "not 3", "I would not use 1 or 2.", "None (of 1, 2, 3)", "1-5 don't apply",
])  # fmt: skip
def test_paths_that_are_denied_are_not_chosen(reply):
    found = parse_path_ids(reply, 13, 5)
    assert found.value == PathChoice(()) and found.error == "denied_ids"


@pytest.mark.parametrize("reply, ids", [
    ("paths 1 and 3", (1, 3)), ("3. None of the others.", (3,)), ("not only 1 but 2", (1, 2)), ("1, 2", (1, 2)),
    ("[1]\nThe others do not fit.", (1,)),
])  # fmt: skip
def test_paths_beside_a_denial_are_chosen(reply, ids):
    assert parse_path_ids(reply, 13, 5).value.ids == ids


@pytest.mark.parametrize("reply, expected", [
    ("It is rare. It spreads. It is rare. It is ra", "It is rare. It spreads."),
    ("Grade 1.3 was seen.\nGrade 1.3 was seen.\n", "Grade 1.3 was seen."),
    ("Gout is painful. It is grave. Gout is", "Gout is painful. It is grave. Gout is"),
    (" disease gout grade 9 course ", "disease gout grade 9 course"),
    ("gout  and\nasthma", "gout  and\nasthma"),
])  # fmt: skip
def test_a_summary_is_handed_on_with_each_sentence_once(reply: str, expected: str) -> None:
    assert parse_summary(reply).value == expected


@given(st.text(max_size=200))
def test_a_summary_without_repetition_stands_as_it_is(reply: str) -> None:
    found = parse_summary(reply)
    assert (found.error == "empty") == (not reply.strip())
    assert found.value == reply.strip() or len(found.value) < len(reply)
