"""`ghar.envs.check`: content with every view of ours; each broken promise is found and named."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

pytest.importorskip("pettingzoo", reason="the views need the extra ray (gymnasium, pettingzoo)")

import numpy as np

from ghar import envs
from ghar.envs.stepper import Scene
from ghar.envs.views.games import TextGame, TextPlay, TokenGame, TokenPlay
from ghar.envs.views.gym_view import GymView
from ghar.envs.views.pettingzoo_view import aec, parallel
from ghar.episode import Act, Completion, Prediction
from ghar.rewards.compose import EpisodeReward
from tests.envs.parts import Corpus, make_case
from tests.envs.test_stepper import no_reward, together
from tests.envs.views import GAMES, ghar_scene_small


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize("view", [GymView, aec, parallel])
def test_our_views_keep_their_promises(game: str, view) -> None:
    if game == "text" and view is not GymView:
        pytest.skip("texts are for Gymnasium: PettingZoo's users want numbers")
    envs.check(view(GAMES[game]()))


@pytest.mark.parametrize("view", [GymView, aec, parallel])
def test_so_does_a_system_that_asks_several_at_once(view) -> None:
    scene = Scene("Pair", ("top", "low"), ("a", "b"), [make_case()], together, Corpus(), no_reward)
    envs.check(view(TokenGame(scene, context=512)))


def broken(**changes) -> GymView:
    return GymView(TextGame(replace(ghar_scene_small(), **changes)))


def test_what_is_no_view_is_told_so() -> None:
    with pytest.raises(AssertionError, match="no view of a game"):
        envs.check(type("Env", (), {"unwrapped": object()})())


def test_an_episode_that_is_not_a_function_of_its_case_is_found() -> None:
    counter = itertools.count()

    def episode(case) -> Iterator:
        yield Act("top", "predict", f"call {next(counter)}")
        return Prediction(0)

    with pytest.raises(AssertionError, match="different prompts"):
        envs.check(broken(episode=episode, reward=no_reward))


def test_undeclared_agents_and_roles_are_found() -> None:
    with pytest.raises(AssertionError, match="agent top is not among"):
        envs.check(broken(agents=("low",)))
    with pytest.raises(AssertionError, match="is not among the scene's"):
        envs.check(broken(roles=("predict",)))


def test_rewards_that_do_not_add_up_are_found() -> None:
    def reward(episode, case) -> EpisodeReward:
        return EpisodeReward({}, 1.0, tuple({} for _ in episode.turns), "shared")

    with pytest.raises(AssertionError, match="add up to 0"):
        envs.check(broken(reward=reward))


class Misheard(TextPlay):
    def act(self, place, action) -> None:
        super().act(place, action)

    def observe(self, place):
        return super().observe(place) + "!"


class MisheardGame(TextGame):
    def start(self, case, seed):
        return Misheard(super().start(case, seed).paused)


def test_a_player_who_is_shown_other_words_is_found() -> None:
    with pytest.raises(AssertionError, match="another text than the prompt"):
        envs.check(GymView(MisheardGame(ghar_scene_small())))


class Lenient(TokenPlay):
    """Takes any action where only some are allowed."""

    def act(self, place, action) -> None:
        act = self.paused.acts[place]
        if act.choices:
            self._finish(place, Completion(act.choices[action % len(act.choices)], self._encode(place)[0]))
        else:
            super().act(place, action)


class LenientGame(TokenGame):
    def start(self, case, seed):
        return Lenient(self, super().start(case, seed).paused)


def test_a_mask_that_is_not_kept_is_found() -> None:
    with pytest.raises(AssertionError, match="outside the mask and was taken"):
        envs.check(GymView(LenientGame(ghar_scene_small(), context=2048)))


def test_a_corpus_that_changes_its_mind_is_found() -> None:
    class Moody(Corpus):
        def __init__(self) -> None:
            super().__init__()
            self.rng = np.random.default_rng(0)

        def retrieve(self, requests):
            found = super().retrieve(requests)
            return [replace(e, passages=e.passages[: int(self.rng.integers(3))]) for e in found]

    with pytest.raises(AssertionError):
        envs.check(broken(corpus=Moody()), episodes=20)
