"""Gymnasium: one learner answers for every agent of a game, decision after decision."""

from __future__ import annotations

from typing import Any, ClassVar, SupportsFloat

import gymnasium
from gymnasium.error import ResetNeeded

from envs.scene import transcript
from envs.views.games import Game, Play, about, begin, earned, ending
from envs.views.spaces import show


class GymView(gymnasium.Env[Any, Any]):
    """A game as a gymnasium.Env. The reward, R_all of the episode, arrives at its end, unless the scene says earlier.

    `info`: agent, role, choices, max_tokens and step of the open decision; after the end sample_id, prediction
    (label index), failure and the reward's terms.
    An episode whose retrieval failed is truncated; every other end is a termination.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(self, game: Game, render_mode: str | None = None):
        self.game = game
        self.render_mode = render_mode
        self.observation_space, self.action_space = game.spaces()
        self.play: Play | None = None
        self._given = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of a case drawn with the seed; options {"case": index} names one instead."""
        super().reset(seed=seed)
        self.play, self._given = begin(self.game, self.np_random, options), 0.0
        return self._seen()

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the first open decision. Raises gymnasium.error.ResetNeeded and InvalidAction."""
        if self.play is None or not (waiting := self.play.paused.waiting()):
            raise ResetNeeded("step() needs an episode under way: call reset() first.")
        self.play.act(waiting[0][1], action)
        observation, info = self._seen()
        worth, episode = earned(self.play), self.play.paused.episode
        reward, self._given = worth - self._given, worth
        failed = episode is not None and episode.failure is not None
        return observation, reward, episode is not None and not failed, failed, info

    def render(self) -> str | None:  # type: ignore[override]
        """The episode so far, as text."""
        if self.render_mode is None:
            return None
        if self.play is None:
            raise ResetNeeded("render() needs an episode under way: call reset() first.")
        return transcript(self.play.paused)

    def _seen(self) -> tuple[Any, dict[str, Any]]:
        assert self.play is not None
        waiting = self.play.paused.waiting()
        if waiting:
            seen = show(self.action_space, self.play.observe(waiting[0][1]))
            return seen, about(self.play, waiting[0][1])
        return show(self.action_space, self.play.observe(None)), ending(self.play)
