"""Reward terms against the equations, evaluated slowly and separately."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.utils.class_weight import compute_class_weight

from ghar.episode import Completion, Episode, Prediction, ReasoningStep, Turn
from ghar.rewards.terms import (
    balanced_weights,
    chain,
    grounding,
    orm,
    path,
    rank,
    reason,
    relevance,
    repeats,
    similarity,
)

text = st.lists(st.sampled_from("kidney Kidney failure drug, a 12 β".split(" ")), max_size=12).map(" ".join)


def overlap_by_crossing_out(a: str, b: str) -> float:
    left = a.lower().replace(",", " ").split()
    right = b.lower().replace(",", " ").split()
    size, common = len(left) + len(right), 0
    for word in left:
        if word in right:
            right.remove(word)
            common += 1
    return 2 * common / size if size else 0.0


@given(text, text)
def test_similarity_counts_common_words(a: str, b: str) -> None:
    assert similarity(a, b) == pytest.approx(overlap_by_crossing_out(a, b))
    assert similarity(a, b) == similarity(b, a)
    assert 0.0 <= similarity(a, b) <= 1.0


@given(text)
def test_similarity_of_a_text_with_itself_is_one(a: str) -> None:
    assert similarity(a, a) == (1.0 if a.strip() else 0.0)


def test_similarity_ignores_case_punctuation_and_order() -> None:
    assert similarity("Renal failure!", "(failure) RENAL") == 1.0
    assert similarity("", "renal") == similarity("", "") == similarity("?!", "?!") == 0.0


def test_one_copied_word_is_not_full_marks() -> None:
    assert similarity("failure", "failure of both kidneys after sepsis") < 0.5


@pytest.mark.parametrize(("steps", "length", "expected"), [(0, 3, 1.0), (1, 3, 2 / 3), (3, 3, 0.0), (6, 3, -1.0)])
def test_reason(steps: int, length: int, expected: float) -> None:
    assert reason((ReasoningStep("q", "a", False),) * steps, length) == pytest.approx(expected)


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_path(correct: int, errors: int, duplicates: int) -> None:
    step = ReasoningStep("q", "a", True, tuple(range(correct)), errors, duplicates)
    assert path(step) == correct - 0.5 * errors - 0.5 * duplicates


@given(text, text, text)
def test_relevance_adds_two_similarities(answer: str, query: str, evidence: str) -> None:
    expected = overlap_by_crossing_out(answer, query) + overlap_by_crossing_out(answer, evidence)
    assert relevance(answer, query, evidence) == pytest.approx(expected)


def episode(label: int | None, formats: list[bool]) -> Episode:
    turns = [Turn("top", "predict", i, 0, Completion("x"), ok) for i, ok in enumerate(formats)]
    return Episode("s", 0, Prediction(label), tuple(turns))


@pytest.mark.parametrize(
    ("label", "formats", "expected"),
    [
        (4, [True, True], 3.0),
        (4, [True, False], 2.5),
        (3, [True, True], 2.0),
        (None, [True, False, False, False], 0.25),
        (None, [False], 0.0),
        (0, [True], 2.0),
    ],
)
def test_orm_counts_accuracy_and_two_formats(label: int | None, formats: list[bool], expected: float) -> None:
    assert orm(episode(label, formats), 4) == pytest.approx(expected)


@given(text, text, text, st.floats(-1, 1))
def test_rank_forms(answer: str, positive: str, negative: str, alpha: float) -> None:
    history = (ReasoningStep("why", answer, False),)
    d = overlap_by_crossing_out("why " + answer, positive) - overlap_by_crossing_out("why " + answer, negative)
    assert rank(history, positive, negative, alpha, "literal") == pytest.approx(max(alpha, d))
    assert rank(history, positive, negative, alpha, "sound") == pytest.approx(min(alpha, d))


def test_literal_rank_is_a_floor_and_the_sound_one_is_not() -> None:
    copied = (ReasoningStep("bad", "path", False),)
    assert rank(copied, "good way", "bad path", 0.1, "literal") == 0.1
    assert rank(copied, "good way", "bad path", 0.1, "sound") == -1.0


def test_chain_keeps_order() -> None:
    assert chain((ReasoningStep("q1", "a1", False), ReasoningStep("q2", "a2", True))) == "q1 a1\nq2 a2"
    assert chain(()) == ""


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
def test_the_same_ids_without_repetition_are_worth_more(correct: int, errors: int, again: int) -> None:
    step, once = (ReasoningStep("q", "a", True, tuple(range(correct)), errors, n) for n in (again, 0))
    every = correct + errors + again
    assert repeats(step) == pytest.approx(-again / every if every else 0.0) and repeats(once) == 0.0
    assert path(step) + repeats(step) <= path(once) and (again == 0 or repeats(step) < 0)


def test_one_id_is_worth_more_than_one_with_another_said_thrice() -> None:
    one, thrice = ReasoningStep("q", "a", True, (4,)), ReasoningStep("q", "a", True, (4, 1), 0, 2)
    assert path(one) == path(thrice) and path(one) + repeats(one) > path(thrice) + repeats(thrice)


@pytest.mark.parametrize(("strange", "queries", "expected"), [(0, 3, 0.0), (1, 3, -1 / 3), (1, 1, -1.0), (0, 0, 0.0)])
def test_grounding(strange: int, queries: int, expected: float) -> None:
    assert grounding(strange, queries) == pytest.approx(expected)


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.data())
def test_a_balanced_outcome_is_balanced_accuracy(labels: list[int], data: st.DataObject) -> None:
    """Against scikit-learn: the weights, and what the mean of the first term of R_orm then is."""
    guesses = data.draw(st.lists(st.sampled_from([None, 0, 1, 2, 3]), min_size=len(labels), max_size=len(labels)))
    weights, present = balanced_weights(labels, 4), sorted(set(labels))
    assert [weights[c] for c in present] == pytest.approx(
        compute_class_weight("balanced", classes=np.array(present), y=labels).tolist()
    )
    assert all(weights[c] == 1.0 for c in range(4) if c not in present)
    right = [orm(episode(g, []), y, weights[y]) - (g is not None) for g, y in zip(guesses, labels, strict=True)]
    recalls = [np.mean([g == c for g, y in zip(guesses, labels, strict=True) if y == c]) for c in present]
    assert np.mean(right) == pytest.approx(np.mean(recalls))
