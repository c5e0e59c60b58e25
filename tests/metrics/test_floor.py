"""Model size, training budget and the base model's share of a result, in words."""

from __future__ import annotations

from typing import Any

from ghar.metrics.model_size import best_step_in_words, budget_in_words, size_in_words
from ghar.metrics.upper_bounds import base_in_words, in_words

POLICIES = {name: {"accuracy": [value, 0.0, 1.0]} for name, value in {"a": 0.9, "a_base": 0.8, "usual": 0.2}.items()}


def summary(**more: Any) -> dict[str, Any]:
    return {"policies": POLICIES, "main": "a", "base": "a_base", "ceilings": {"parametric": 0.5}, **more}


def test_the_base_models_share_is_stated_above_what_needs_no_retrieval():
    said = base_in_words(summary())
    assert said is not None and "without retrieval (0.500): +0.300 before training (0.800), +0.400 " in said
    assert said.endswith("the base model has 75% of it")
    usual = base_in_words(summary(ceilings=None))
    assert usual is not None and "usual label (0.200)" in usual and "86%" in usual
    worse = base_in_words(summary(ceilings={"parametric": 0.95}))
    assert worse is not None and "%" not in worse


def test_nothing_is_said_of_what_is_not_known():
    assert base_in_words(summary(base=None)) is None and base_in_words({}) is None
    assert size_in_words({}) is None and budget_in_words({"trained_on": {"episodes": 0}}) is None


def test_an_untrained_model_has_no_numbers_of_before_and_after_training():
    assert base_in_words(summary(answered_by={"a": "base", "a_base": "base"})) is None
    assert base_in_words(summary(answered_by={"a": "sft", "a_base": "base"})) == base_in_words(summary())


def test_sizes_are_stated():
    assert size_in_words({"model": {"parameters": 269_760, "vocabulary": 1_703}}) == (
        "269,760 parameters, vocabulary of 1,703 tokens"
    )
    best = {"best_step": {"step": 1_200, "seconds": 83.25}}
    assert best_step_in_words(best) == "step 1,200 of SFT, after 83.2 s of training" and best_step_in_words({}) is None
    found = {"pretraining examples": 224_000, "SFT replies": 0, "episodes": 3_840}
    assert budget_in_words({"trained_on": found}) == "224,000 pretraining examples, 3,840 episodes"


def test_ceilings_of_one_value_are_one_line():
    """EHR-RAG has one for each of sixteen sets of evidence, most of which tell nothing."""
    values = {"nothing": 0.65, "onset": 0.65, "onset and slope": 0.9, "retrieval": 0.9}
    assert in_words(summary(ceilings=values)) == [
        "nothing, onset 0.650", "onset and slope 0.900", "retrieval 0.900 (with retrieval)"
    ]
