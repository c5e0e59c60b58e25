"""The reward of a set of options."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ghar.envs.exprag.episode import score_options
from ghar.episode import Completion, Episode, Prediction, Turn
from ghar.rewards.outcome import score_outcome


def episode(label: int | None, readable: tuple[bool, ...] = (True,), failure: str | None = None) -> Episode:
    turns = tuple(Turn("top", "predict", i, 0, Completion("A"), ok) for i, ok in enumerate(readable))
    return Episode("s", 0, Prediction(label), turns, failure=failure)


@pytest.mark.parametrize("label, readable, total", [
    (0b11, (True,), 5 * 3.0), (0b01, (True,), 5 * (2 / 3 + 2)), (None, (False,), 0.0), (0b100, (False, True), 5 * 1.5),
])  # fmt: skip
def test_f1_and_format(label: int | None, readable: tuple[bool, ...], total: float) -> None:
    found = score_options(episode(label, readable), 0b11, eta=5.0)
    assert found.total == pytest.approx(total) and sum(found.arriving()) == pytest.approx(total)
    assert found.arriving()[:-1] == (0.0,) * (len(readable) - 1) and len(found.per_turn) == len(readable)


def test_a_failed_episode_is_worth_nothing() -> None:
    found = score_options(episode(None, (), "retrieval: broken"), 0b1, eta=5.0)
    assert found.total == 0 and found.per_turn == ()


def test_an_episode_that_was_cut_has_no_outcome() -> None:
    cut = replace(episode(None, (True, True)), cut=True)
    for found in (score_options(cut, 0b1, eta=5.0), score_outcome(cut, 1, eta=5.0)):
        assert found.total == 0 and found.arriving() == (0.0, 0.0)
