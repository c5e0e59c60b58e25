"""Continuations of one text scored as a tree: each log-probability is that of a pass of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.llm import tree_scores
from ghar.llm.hf import HFEngine
from ghar.llm.tree_scores import tree_of
from tests.trainers.tiny import tiny_model, tiny_tokenizer

TOKEN = st.integers(2, 63)
TARGET = st.lists(TOKEN, max_size=4).map(tuple)


def directly(model: Any, context: tuple[int, ...], target: tuple[int, ...]) -> list[float]:
    """One plain pass."""
    ids = (*context, *target)
    with torch.inference_mode():
        logp = model(input_ids=torch.tensor([ids])).logits[0].double().log_softmax(-1)
    return [float(logp[n - 1, ids[n]]) for n in range(len(context), len(ids))]


@pytest.mark.slow
@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.lists(TOKEN, min_size=1, max_size=9).map(tuple), st.lists(TARGET, max_size=6)), max_size=5),
    st.integers(1, 4),
    st.sampled_from([1, 500, 1 << 27]),
)
def test_scores_are_those_of_a_pass_each(texts: list[Any], max_batch: int, logits: int) -> None:
    model = tiny_model().eval()
    pairs = [(context, target) for context, targets in texts for target in targets]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tree_scores, "LOGITS", logits)
        found = HFEngine(model, tiny_tokenizer(), max_batch).score(pairs)
    for (context, target), scores in zip(pairs, found, strict=True):
        assert scores == pytest.approx(directly(model, context, target), abs=1e-5)


def test_a_text_is_read_once_for_all_that_may_follow() -> None:
    model = tiny_model()
    read: list[int] = []
    model.register_forward_pre_hook(lambda _, args, kwargs: read.append(kwargs["input_ids"].numel()), with_kwargs=True)
    context = tuple(range(2, 52))
    labels = [(7,), (8,), (9, 4), (9, 5), (9, 5, 6)]
    HFEngine(model, tiny_tokenizer()).score([(context, label) for label in labels])
    assert read == [49, 3]  # the text but its last token; that one, 9 and 9 5, behind which labels go on


def test_a_tree_holds_what_labels_begin_alike_with_once() -> None:
    tree = tree_of((1, 2), [(5, 6, 7), (5, 6, 8), (5,), (9,), ()])
    assert tree.tokens == (2, 5, 6) and tree.parents == (-1, 0, 1)
    assert tree.paths == ((0, 1, 2), (0, 1, 2), (0,), (0,), ())


def test_a_model_that_takes_no_mask_of_a_tree_scores_each_alone() -> None:
    model = tiny_model().eval()
    model.config._attn_implementation = "eager"
    pairs = [((2, 3, 4), (5,)), ((2, 3, 4), (6, 7))]
    for (context, target), scores in zip(pairs, HFEngine(model, tiny_tokenizer()).score(pairs), strict=True):
        assert scores == pytest.approx(directly(model, context, target), abs=1e-5)
