"""PettingZoo's own checks on every game of several agents, and what a user meets who errs."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any

import pytest

pytest.importorskip("pettingzoo", reason="the views need the extra ray (pettingzoo)")

import numpy as np
from gymnasium.error import Error, InvalidAction
from pettingzoo.test import api_test, parallel_api_test, parallel_seed_test, seed_test

from ghar.envs.stepper import Scene
from ghar.envs.views.games import TokenGame
from ghar.envs.views.gym_view import GymView
from ghar.envs.views.pettingzoo_view import aec, parallel
from tests.envs.parts import Corpus, make_case
from tests.envs.test_stepper import no_reward, together
from tests.envs.views import GAMES

ENCODED = ["tokens", "navigation"]
# Of an agent with nothing to decide, and of observations with a mask, as in PettingZoo's own classic games.
# Texts are neither boxes nor numbers.
EXPECTED = (
    "all zeros", "Observation is not a NumPy array", "Observation space for each agent probably should be",
    "Action space for each agent probably should be",
)  # fmt: skip


@pytest.mark.parametrize("name", ENCODED)
def test_pettingzoos_own_tests_pass(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    game = GAMES[name]()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        api_test(aec(game, "ansi"), num_cycles=300)
        parallel_api_test(parallel(game, "ansi"), num_cycles=300)
        seed_test(partial(aec, game), num_cycles=200)
        parallel_seed_test(partial(parallel, game), num_cycles=200)
    assert [str(w.message) for w in caught if not any(e in str(w.message) for e in EXPECTED)] == []


def play_aec(game: Any, seed: int) -> tuple[list[tuple[str, int]], dict[str, float]]:
    """A seeded random episode: who did what, and what each agent was given."""
    env, rng = aec(game), np.random.default_rng(seed)
    env.reset(seed=seed)
    done: list[tuple[str, int]] = []
    given = dict.fromkeys(env.possible_agents, 0.0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, _ = env.last()
        given[agent] += reward
        action = None
        if not (terminated or truncated):
            action = int(rng.choice(np.flatnonzero(observation["action_mask"])))
            done.append((agent, action))
        env.step(action)
    return done, given


@pytest.mark.parametrize("name", ENCODED)
@pytest.mark.parametrize("seed", range(4))
def test_one_episode_in_three_views(name: str, seed: int) -> None:
    """The same actions are the same episode: one after the other, side by side, and for one learner alone."""
    done, given = play_aec(GAMES[name](), seed)
    assert {agent for agent, _ in done} <= {"top_0", "low_0"}
    side = parallel(GAMES[name]())
    side.reset(seed=seed)
    received = dict.fromkeys(side.possible_agents, 0.0)
    for agent, action in done:
        assert list(side.decisions()) == [agent]
        _, rewards, *_ = side.step({a: action if a == agent else 0 for a in side.agents})
        received = {a: received[a] + rewards[a] for a in received}
    alone = GymView(GAMES[name]())
    alone.reset(seed=seed)
    reward = 0.0
    for _, action in done:
        _, reward, *_ = alone.step(action)
    assert not side.agents and received == given
    assert alone.play is not None and side.play is not None
    assert alone.play.paused.episode == side.play.paused.episode
    assert set(given.values()) == {reward}  # the shared composition: all of it for everybody


def test_agents_that_are_asked_together_act_at_one_step() -> None:
    scene = Scene("Pair", ("top", "low"), ("a", "b"), [make_case()], together, Corpus(), no_reward)
    env = parallel(TokenGame(scene, context=256))
    seen, infos = env.reset(seed=0)
    assert all(seen[agent]["observation"][0] == 1 and infos[agent]["role"] == "a" for agent in env.agents)
    seen, *_ = env.step({"top_0": 256, "low_0": 256})  # both say nothing
    assert seen["top_0"]["observation"][0] == 0 and seen["low_0"]["observation"][0] == 2


@pytest.mark.parametrize("name", ENCODED)
def test_errors_are_pettingzoos(name: str) -> None:
    env = aec(GAMES[name]())
    with pytest.raises(AssertionError, match="reset"):
        env.step(0)
    for seed in ("1", 1.5):
        with pytest.raises(Error, match="Seed must be"):
            env.reset(seed=seed)  # type: ignore[arg-type]
    env.reset(seed=0)
    for action in (10**6, -1, "yes"):
        with pytest.raises(AssertionError):
            env.step(action)
    side = parallel(GAMES[name]())
    with pytest.raises(AssertionError, match="reset"):
        side.step({})
    side.reset(seed=0)
    with pytest.raises(KeyError, match="top_0"):
        side.step({"low_0": 0})
    with pytest.raises(AssertionError):
        side.step({"top_0": -1, "low_0": 0})
    with pytest.raises(InvalidAction, match="wait"):
        side.step({"top_0": 0, "low_0": 1})


def test_an_action_outside_the_mask_is_refused() -> None:
    env = aec(GAMES["navigation"]())
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="outside the action mask, which allows 0, 1 here"):
        env.step(4)
    env.step(1)


def test_after_the_end_agents_leave_one_by_one() -> None:
    env = aec(GAMES["navigation"]())
    env.reset(seed=0)
    while not any(env.terminations.values()):
        env.last()
        env.step(env.action_space(env.agent_selection).sample())
    assert all(env.terminations.values()) and len(env.agents) == 2
    with pytest.raises((ValueError, AssertionError)):
        env.step(0)
    env.step(None)
    env.step(None)
    assert env.agents == []
