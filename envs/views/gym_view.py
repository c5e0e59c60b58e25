"""Gymnasium: one learner answers for every agent of a game, decision after decision."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, SupportsFloat

import gymnasium
import numpy as np
from gymnasium.error import InvalidAction, ResetNeeded

from ghar.envs.stepper import transcript
from ghar.envs.views.games import Game, Play, about, begin, earned, ending
from ghar.envs.views.spaces import show

Illegal = Literal["raise", "penalise", "resample"]
ILLEGAL: tuple[Illegal, ...] = ("raise", "penalise", "resample")
PENALTY = 1.0  # what an action outside the mask costs, where it is penalised


class GymView(gymnasium.Env[Any, Any]):
    """A game as a gymnasium.Env. The reward, R_all of the episode, arrives at its end, unless the scene says earlier.

    `info`: agent, role, choices, max_tokens and step of the open decision; after the end sample_id, prediction
    (label index), failure and the reward's terms. Where actions are numbers it has the mask too, as "action_mask".
    An episode whose retrieval failed is truncated; every other end is a termination.
    illegal: what an action outside the mask is: an error ("raise"), or an allowed one drawn in its place ("resample"),
    at a price of `PENALTY` ("penalise"), for learners that know no masks; info says "illegal" then.
    """

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["ansi"], "render_fps": 1}

    def __init__(self, game: Game, render_mode: str | None = None, illegal: Illegal = "raise"):
        if illegal not in ILLEGAL:
            raise ValueError(f"illegal={illegal!r}: choose among {', '.join(ILLEGAL)}.")
        self.game = game
        self.render_mode = render_mode
        self.illegal = illegal
        self.observation_space, self.action_space = game.spaces()
        self.play: Play | None = None
        self._given = 0.0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode of a case drawn with the seed; options {"case": index} names one instead."""
        super().reset(seed=seed)
        self.play, self._given = begin(self.game, self.np_random, options), 0.0
        return self._seen()

    def step(self, action: object) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take the first open decision. Raises gymnasium.error.ResetNeeded and InvalidAction."""
        if self.play is None or not (waiting := self.play.paused.waiting()):
            raise ResetNeeded("step() needs an episode under way: call reset() first.")
        wrong = self._act(waiting[0][1], action)
        observation, info = self._seen()
        worth, episode = earned(self.play), self.play.paused.episode
        reward, self._given = worth - self._given, worth
        if wrong:
            info["illegal"] = True
            reward -= PENALTY if self.illegal == "penalise" else 0.0
        failed = episode is not None and episode.failure is not None
        return observation, reward, episode is not None and not failed, failed, info

    def action_masks(self) -> np.ndarray:
        """Which actions are allowed now, bool [actions], as sb3-contrib's MaskablePPO asks for it."""
        mask = None if self.play is None else self._mask()
        if mask is None:
            raise ResetNeeded("action_masks() needs an episode under way, of a game whose actions are numbers.")
        return mask.astype(bool)

    def _act(self, place: int, action: object) -> bool:
        """Take the decision; whether another action had to stand in for it."""
        assert self.play is not None
        try:
            self.play.act(place, action)
        except InvalidAction:
            mask = None if self.illegal == "raise" else self._mask()
            if mask is None or isinstance(action, bool) or not isinstance(action, int | np.integer):
                raise
            self.play.act(place, int(self.np_random.choice(np.flatnonzero(mask))))
            return True
        return False

    def _mask(self) -> np.ndarray | None:
        """The mask of the open decision; None where actions are texts."""
        assert self.play is not None
        waiting = self.play.paused.waiting()
        seen = self.play.observe(waiting[0][1] if waiting else None)
        return seen["action_mask"] if isinstance(seen, dict) else None

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
            masked = {"action_mask": seen["action_mask"]} if isinstance(seen, dict) else {}
            return seen, about(self.play, waiting[0][1]) | masked
        return show(self.action_space, self.play.observe(None)), ending(self.play)
