"""Shared beginnings are read once and change no score."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.graphwalker.prefix import PlainScorer, PrefixScorer
from ghar.llm.hf import HFEngine
from tests.trainers.tiny import tiny_model, tiny_tokenizer

PIECE = st.lists(st.integers(2, 63), min_size=1, max_size=5).map(tuple)


def engine(max_batch: int = 4) -> HFEngine:
    return HFEngine(tiny_model(), tiny_tokenizer(), max_batch)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.lists(PIECE, min_size=3, max_size=5, unique=True), st.data(), st.integers(0, 40))
def test_scores_are_those_from_scratch(pieces: list[tuple[int, ...]], data: st.DataObject, keep: int) -> None:
    """Any tree of prompts, in two calls, with any memory between them."""
    paths = st.lists(st.sampled_from(pieces), min_size=1, max_size=3).map(lambda found: ((2, 3), *found))
    shared, plain = PrefixScorer(engine(), keep), PlainScorer(engine())
    for _ in range(2):
        prompts = data.draw(st.lists(paths, min_size=1, max_size=7))
        for ours, theirs in zip(shared.score(prompts), plain.score(prompts), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert shared.tally.prompts == plain.tally.prompts and shared.tally.scratch == plain.tally.tokens
    assert shared.tally.tokens <= plain.tally.tokens


def test_a_shared_beginning_is_read_once_also_by_a_later_call() -> None:
    head, example = tuple(range(2, 22)), tuple(range(22, 32))
    scorer = PrefixScorer(engine(), keep=1000)
    scorer.score([(head, example, (i, 3)) for i in range(40, 50)])
    assert scorer.tally.tokens == (20 - 1) + 10 + 10 * 2  # the head but its last token, the example, ten patients
    scorer.score([(head, example, (5, 6))])
    assert scorer.tally.tokens == 19 + 10 + 20 + 2


def test_other_weights_find_nothing_of_the_old_ones() -> None:
    own = engine()
    scorer = PrefixScorer(own, keep=1000)
    prompt = ((2, 3, 4), (5, 6), (7, 8))
    before = scorer.score([prompt])
    own.sync(tiny_model(seed=1), 1)
    after = scorer.score([prompt])
    assert not np.allclose(before, after, atol=1e-3)
    np.testing.assert_allclose(after, PlainScorer(own).score([prompt]), atol=1e-4)


def test_nothing_predicts_the_first_token() -> None:
    with pytest.raises(ValueError, match="two tokens"):
        PrefixScorer(engine(), 10).score([((2,), (3,))])


def test_memory_is_bounded() -> None:
    scorer = PrefixScorer(engine(), keep=12)
    scorer.score([((2, 3, 4, 5), (i, 7, 8), (9,)) for i in range(10, 30)])
    assert sum(node[0][0].shape[1] for node in scorer._kept.values()) <= 12
    assert torch.is_inference_mode_enabled() is False
