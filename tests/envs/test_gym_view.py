"""The Gymnasium view of every game, and what a user meets who errs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gymnasium", reason="the views need the extra ray (gymnasium)")

from gymnasium.error import Error, InvalidAction, ResetNeeded

from ghar.envs.views.games import codec_of
from ghar.envs.views.gym_view import GymView
from ghar.envs.views.spaces import Unicode
from tests.envs.views import GAMES, text_game, token_game
from tests.running import run_python

ROOT = Path(__file__).resolve().parents[2]
@pytest.mark.parametrize("game", GAMES)
def test_random_play_needs_no_care_and_ends(game: str) -> None:
    env = GymView(GAMES[game](), render_mode="ansi")
    env.action_space.seed(0)
    for seed in range(3):
        observation, info = env.reset(seed=seed)
        ended, rewards = False, []
        while not ended:
            assert env.observation_space.contains(observation) and {"agent", "role", "choices"} <= set(info)
            observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
            rewards.append(reward)
            ended = terminated or truncated
        assert terminated and not truncated and set(rewards[:-1]) <= {0.0} and info["failure"] is None
        assert set(info["terms"]) >= {"reason", "orm"} and f"== prediction {info['prediction']} ==" in str(env.render())


def test_the_seed_chooses_patient_and_everything_else() -> None:
    env = GymView(text_game())
    first = [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]
    assert first == [env.reset(seed=3)[0], env.reset()[0], env.reset()[0]]
    assert len({env.reset(seed=s)[0] for s in range(20)}) > 1
    assert env.reset(seed=0, options={"case": 4})[0] == env.reset(seed=1, options={"case": 4})[0]


def test_tokens_are_the_prompts_and_the_replies() -> None:
    game = token_game()
    env = GymView(game)
    seen, info = env.reset(seed=0)
    for byte in b"a; b":
        header, ids = seen["observation"][:4], seen["observation"][4:]
        text = game.codec.decode(ids[: header[3]].tolist())
        assert text.startswith(env.unwrapped.play.paused.acts[0].prompt)  # type: ignore[union-attr]
        assert header[0] == 1 and header[1] == 0 and env.unwrapped.play is not None
        seen, *_, info = env.step(byte)
    seen, *_, info = env.step(game.codec.end)
    assert info["role"] == "retrieve" and seen["action_mask"].sum() == 2
    turn = env.play.paused.turns[0]  # type: ignore[union-attr]
    assert turn.completion.text == "a; b" and turn.completion.token_ids == (*b"a; b", 256)
    env.step(0)
    assert env.play.paused.trace[-1].result.text == info["choices"][0]  # type: ignore[union-attr]


def test_a_reply_that_is_too_long_is_cut_where_a_models_is() -> None:
    env = GymView(token_game())
    _, info = env.reset(seed=0)
    for _ in range(info["max_tokens"]):
        env.step(ord("x"))
    completion = env.play.paused.turns[0].completion  # type: ignore[union-attr]
    assert completion.finish_reason == "length" and completion.text == "x" * info["max_tokens"]


def test_a_models_tokenizer_makes_a_codec() -> None:
    from ghar.llm.demo_model import build_tokenizer

    codec = codec_of(build_tokenizer(["how long will it be"], ["grade 3 course"], 300))
    assert codec.decode(codec.encode("how long")).strip() == "how long" and 0 <= codec.end < codec.size


@pytest.mark.parametrize("game", GAMES)
def test_a_step_before_reset_or_after_the_end_is_refused(game: str) -> None:
    env = GymView(GAMES[game]())
    with pytest.raises(ResetNeeded):
        env.step(0)
    env.reset(seed=0)
    ended = False
    while not ended:
        _, _, *flags, _ = env.step(env.action_space.sample())
        ended = any(flags)
    with pytest.raises(ResetNeeded):
        env.step(env.action_space.sample())


@pytest.mark.parametrize("game, action", [
    ("text", 3), ("text", None), ("tokens", 257), ("tokens", -1), ("tokens", "a"), ("tokens", 1.5), ("tokens", True),
    ("navigation", 5), ("navigation", "yes"), ("navigation", None),
])  # fmt: skip
def test_a_wrong_action_is_refused_and_changes_nothing(game: str, action: object) -> None:
    env = GymView(GAMES[game](), render_mode="ansi")
    env.reset(seed=0)
    before = env.render()
    with pytest.raises(InvalidAction):
        env.step(action)
    assert env.render() == before
    env.step(env.action_space.sample())


@pytest.mark.parametrize("seed", ["1", 1.5, -1])
def test_a_seed_is_a_whole_number(seed: Any) -> None:
    with pytest.raises(Error, match="Seed must be"):
        GymView(text_game()).reset(seed=seed)


def test_unicode_takes_what_people_write_and_only_that() -> None:
    space = Unicode(10)
    assert all(space.contains(text) for text in ("", "a b, c.", "Grüße", "肺炎", "🙂"))
    assert not any(space.contains(text) for text in ("x" * 11, "\ud800", 3, None))
    space.seed(1)
    drawn = [space.sample() for _ in range(200)]
    assert all(space.contains(text) and text.encode() is not None for text in drawn)
    assert any(not text.isascii() for text in drawn) and len(set(drawn)) > 150
    assert space == Unicode(10) != Unicode(11)


def test_importing_the_packages_stays_light() -> None:
    heavy = ("torch", "gymnasium", "pettingzoo", "ray")
    script = f"import ghar, envs, sys; print([m for m in {heavy} if m in sys.modules])"
    done = run_python("-c", script)
    assert done.stdout == "[]\n", done.stderr
