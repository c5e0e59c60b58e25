"""What an answer took of a language model."""

from __future__ import annotations

from ghar.metrics.rows import calls_of, tokens_of

ROW = {"turns": [{}, {}], "prompt_tokens": 120, "completion_tokens": 6}


def test_an_answer_without_chosen_examples_took_its_turns() -> None:
    assert (calls_of(ROW), tokens_of(ROW)) == (2, 126)


def test_the_prompts_that_chose_examples_count_as_those_of_turns_do() -> None:
    """32.5 scored prompts a patient were left out of tables of costs, where GraphWalker had one call."""
    row = {**ROW, "cost": {"prompts": 30.5, "tokens": 400.0, "scratch": 900.0, "replies": 2.0}}
    assert (calls_of(row), tokens_of(row)) == (34.5, 1026)
