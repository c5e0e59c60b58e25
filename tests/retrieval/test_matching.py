"""Scores of pieces of text: BM25, vectors, and their fusion against its formula."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.matching import Matcher, bm25, dense, fused, tfidf, top

TEXTS = ["heart failure", "sepsis and shock", "heart and kidney", ""]
MATCHERS = [bm25, tfidf, dense(HashingEncoder(64)), fused(bm25, tfidf)]


@pytest.mark.parametrize("matcher", MATCHERS)
def test_what_shares_words_is_found(matcher: Matcher) -> None:
    scores = matcher(TEXTS, "heart failure")
    assert scores.argmax() == 0 and scores[2] > 0 and scores[3] == 0
    assert matcher([""], "heart").tolist() == [0] and len(matcher([], "heart")) == 0


numbers = st.lists(st.integers(0, 4).map(float), min_size=1, max_size=8)


@pytest.mark.slow
@settings(max_examples=60)
@given(numbers, st.data())
def test_fusion_is_the_mean_of_relative_scores(one: list[float], data: st.DataObject) -> None:
    other = data.draw(st.lists(st.integers(0, 4).map(float), min_size=len(one), max_size=len(one)))
    found = fused(lambda t, q: np.array(one), lambda t, q: np.array(other))(["x"] * len(one), "q")
    for i in range(len(one)):
        expected = 0.0
        for scores in (one, other):
            hits = [score for score in scores if score > 0]
            if scores[i] > 0:
                spread = max(hits) - min(hits)
                expected += (scores[i] - min(hits)) / spread / 2 if spread else 1 / 2
        assert found[i] == pytest.approx(expected, abs=1e-8)
        assert (found[i] > 0) == (one[i] > 0 or other[i] > 0)  # the worst that was found is still found


def test_top_takes_the_earlier_of_equal_ones_and_nothing_without_a_score() -> None:
    assert top(np.array([0.0, 2.0, 3.0, 2.0]), 2).tolist() == [2, 1]
    assert top(np.zeros(3), 2).tolist() == []
