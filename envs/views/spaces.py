"""Spaces of the views: any text, and observations with an action mask."""

from __future__ import annotations

import string
from typing import Any

import numpy as np
from gymnasium import spaces

SAMPLED = 32  # characters of a sampled text, at most
SURROGATES = range(0xD800, 0xE000)  # halves of characters, which no encoder takes


class Unicode(spaces.Text):
    """Every string of at most `max_length` characters that can be encoded: a gymnasium Text of any character. (Text
    lists its characters, so that its default rejects a space or a comma.) As `Allowed`, it samples what the
    environment allows: of an agent with nothing to decide the empty text alone."""

    def __init__(self, max_length: int, seed: int | np.random.Generator | None = None):
        self.first: bool | None = None
        self.idle = False
        super().__init__(max_length, min_length=0, charset=string.printable, seed=seed)

    def seed(self, seed: int | None = None) -> Any:
        self.idle = bool(self.first)
        return super().seed(seed)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """Up to 32 characters, half of them ASCII, the others of any script; "" where there is nothing to decide."""
        if self.idle:
            return ""
        size = int(self.np_random.integers(min(SAMPLED, self.max_length) + 1))
        highest = np.where(self.np_random.random(size) < 0.5, 127, SURROGATES.start)
        return "".join(map(chr, self.np_random.integers(32, highest)))

    def contains(self, x: object) -> bool:
        return isinstance(x, str) and len(x) <= self.max_length and not any(ord(c) in SURROGATES for c in x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Unicode) and other.max_length == self.max_length

    def __repr__(self) -> str:
        return f"Unicode({self.max_length})"


class PromptText(str):
    """A text with the dtype of its space, which PettingZoo's api_test asks every observation for."""

    dtype = np.dtype(str)


class Allowed(spaces.Discrete):
    """Discrete actions that are not all allowed at all times: `sample()` without a mask draws among those the
    environment showed as allowed last, so that random play needs no care. Whoever seeds a space begins anew: then
    they are those of an episode's first decision."""

    def __init__(self, n: int):
        self.first: np.ndarray | None = None
        self.now: np.ndarray | None = None
        super().__init__(n)

    def seed(self, seed: int | None = None) -> Any:
        self.now = self.first
        return super().seed(seed)

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> np.int64:
        return super().sample(self.now if mask is None and probability is None else mask, probability)


def show(space: spaces.Space[Any], observation: Any) -> Any:
    """The observation, once `space` knows what it allows."""
    if isinstance(space, Unicode):
        space.idle = observation == ""
        space.first = space.idle if space.first is None else space.first
    elif isinstance(space, Allowed):
        space.now = observation["action_mask"]
        space.first = space.now if space.first is None else space.first
    return observation


def masked(observation: spaces.Box, actions: int) -> spaces.Dict:
    """Observation and action mask, named as PettingZoo's classic games name them."""
    return spaces.Dict({"observation": observation, "action_mask": spaces.Box(0, 1, (actions,), np.int8)})
