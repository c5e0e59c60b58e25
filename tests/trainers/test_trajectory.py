"""Flat token arrays and their table."""

from dataclasses import replace

import numpy as np
import pytest

from ghar.episode import Completion, Episode, Prediction, Turn
from ghar.rewards.compose import EpisodeReward
from tests.trainers.minibatch import select
from tests.trainers.tiny import build


def turn(index: int, role: str, prompt: list[int], reply: list[int], agent: str = "top", **kw) -> Turn:
    completion = Completion("x", tuple(prompt), tuple(reply), tuple(-0.1 * t for t in reply), **kw)
    return Turn(agent, role, index, 0, completion, True)


def reward(turns: int, last: float, composition: str = "shared", **first: float) -> EpisodeReward:
    per_turn = [dict(first), *({} for _ in range(turns - 1))]
    per_turn[-1]["orm"] = last
    return EpisodeReward({}, 0.0, tuple(per_turn), composition)


ONE = Episode(
    "a", 0, Prediction(1),
    (
        turn(0, "retrieve", [5, 6], [7], choice_ids=((7,), (8, 9))),
        turn(1, "summarise", [5, 6, 7], [1, 2, 3], agent="low", finish_reason="length", version=4),
        replace(turn(2, "predict", [4], [8, 9]), trainable=False),
    ),
)  # fmt: skip
TWO = Episode("b", 0, Prediction(None), (turn(0, "predict", [1], [2, 2], finish_reason="length"),))
FAILED = Episode("c", 0, Prediction(None), (turn(0, "retrieve", [9], [9]),), failure="retriever")


def both(composition: str = "shared"):
    first = reward(3, 5.0, composition, relevance=-0.5)
    return build([ONE, FAILED, TWO], [first, reward(1, 0.0), reward(1, 2.0, composition)])


def test_tokens_stay_as_sampled() -> None:
    traj = both()
    assert traj.tokens.tolist() == [5, 6, 7, 5, 6, 7, 1, 2, 3, 4, 8, 9, 1, 2, 2]
    np.testing.assert_allclose(
        traj.logprobs, [0, 0, -0.7, 0, 0, 0, -0.1, -0.2, -0.3, 0, 0, 0, 0, -0.2, -0.2], rtol=1e-6
    )
    assert traj.tokens.dtype == np.int64 and traj.logprobs.dtype == np.float32


def test_table_has_a_prompt_and_a_completion_for_each_turn() -> None:
    table = both().segments
    assert table.row.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert table.episode.tolist() == [0] * 6 + [1] * 2
    assert table.turn.tolist() == [0, 0, 1, 1, 2, 2, 0, 0]
    assert table.start.tolist() == [0, 2, 3, 6, 9, 10, 12, 13]
    assert table.end.tolist() == [2, 3, 6, 9, 10, 12, 13, 15]
    assert table.trainable.tolist() == [False, True, False, True, False, False, False, True]
    assert [both().agents[a] for a in table.agent[1::2]] == ["top", "low", "top", "top"]
    assert [both().roles[r] for r in table.role[1::2]] == ["retrieve", "summarise", "predict", "predict"]
    assert table.finish[1::2].tolist() == [0, 1, 0, 1] and table.version[1::2].tolist() == [0, 4, 0, 0]
    assert not table.truncated.any()


def test_only_what_the_policy_did_not_do_truncates() -> None:
    """TWO ran into max_tokens without an answer: that is its own doing, and an end."""
    assert TWO.turns[-1].completion.finish_reason == "length" and TWO.prediction.label is None
    table = build(
        [TWO, replace(TWO, cut=True), replace(ONE, cut=True)], [reward(1, 0.0)] * 2 + [reward(3, 0.0)]
    ).segments
    assert table.truncated.tolist() == [False] * 2 + [True] * 8


def test_mask_counts_and_failures() -> None:
    traj = both()
    assert np.flatnonzero(traj.mask).tolist() == [2, 6, 7, 8, 13, 14]
    assert traj.trainable_tokens == 6
    assert (traj.failed, traj.sample_ids) == (1, ("a", "b"))


def test_rewards_sit_on_completions() -> None:
    shared, separate = both().segments, both("separate").segments
    assert shared.reward.tolist() == [0, -0.5, 0, 0, 0, 5.0, 0, 2.0]
    assert shared.agent_reward.tolist() == [[x, x] for x in shared.reward]
    assert separate.agent_reward[:6].tolist() == [[0, 0], [0, -0.5], [0, 0], [0, 0], [0, 0], [5, 0]]
    assert separate.reward.tolist() == shared.reward.tolist()


def test_a_batch_has_one_composition() -> None:
    assert both("separate").separate and not both().separate and select(both("separate"), [1]).separate
    with pytest.raises(ValueError, match="2 reward compositions"):
        build([TWO, TWO], [reward(1, 0.0), reward(1, 0.0, "separate")])
    assert not build([TWO, FAILED], [reward(1, 0.0), reward(1, 0.0, "separate")]).separate  # the failed one is out


def test_rows_are_model_contexts() -> None:
    rows = list(both().rows())
    assert [row.prompt for row in rows] == [2, 3, 1, 1]
    assert rows[1].tokens.tolist() == [5, 6, 7, 1, 2, 3] and rows[1].start == 3
    assert rows[0].choice_ids == ((7,), (8, 9)) and rows[1].choice_ids == ()
    assert [row.trainable for row in rows] == [True, True, False, True]


def test_a_policy_without_tokens_leaves_empty_segments() -> None:
    silent = Episode("d", 0, Prediction(1), (Turn("top", "predict", 0, 0, Completion("yes"), True),))
    traj = build([silent], [reward(1, 3.0)])
    assert len(traj.tokens) == 0 and traj.segments.reward.tolist() == [0, 3.0]
    assert not traj.segments.trainable.any() and len(list(traj.rows())) == 1


def test_nothing_at_all() -> None:
    traj = build([FAILED], [reward(1, 0.0)])
    assert (traj.failed, len(traj.segments), traj.trainable_tokens) == (1, 0, 0)


def test_bad_turns_are_named() -> None:
    short = replace(ONE.turns[0], completion=Completion("x", (1,), (1, 2), (-0.1,)))
    for bad, words in [
        (short, "1 log-probs for 2"),
        (replace(ONE.turns[0], agent="middle"), "middle"),
        (replace(ONE.turns[0], role="guess"), "guess"),
        (replace(ONE.turns[0], completion=Completion("x", finish_reason="abort")), "abort"),
    ]:
        with pytest.raises(ValueError, match=words):
            build([replace(ONE, turns=(bad,))], [reward(1, 0.0)])
