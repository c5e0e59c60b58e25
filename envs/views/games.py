"""A scene as a game: what an agent observes at each decision and how an action answers it.

Two kinds, for one episode or the other view: `TextGame` (prompt in, reply out) and `TokenGame` (token ids in, one token
or one choice out). envs/ghar/navigation.py has a third, with numbers in place of text. gym_view.py and
pettingzoo_view.py play any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from gymnasium import spaces
from gymnasium.error import InvalidAction

from ghar.envs.stepper import Scene, SteppedEpisode
from ghar.envs.views.spaces import Allowed, PromptText, Unicode, masked
from ghar.episode import Act, Completion
from ghar.errors import BadInput
from ghar.rewards.compose import EpisodeReward

MAX_TEXT = 1 << 20  # characters of a prompt or reply
HEADER = 4  # phase, choices, tokens left, tokens: what stands before the token ids of an observation


class Play(Protocol):
    """One episode under way."""

    @property
    def paused(self) -> SteppedEpisode: ...

    def observe(self, place: int | None) -> Any:
        """What the agent sees that decides at `place`; None: what one sees that has nothing to decide."""
        ...

    def act(self, place: int, action: object) -> None:
        """Take the decision. Raises gymnasium.error.InvalidAction, and then nothing has happened."""
        ...


class Game(Protocol):
    """Makes plays; all agents share one observation space and one action space."""

    @property
    def scene(self) -> Scene: ...

    @property
    def agents(self) -> tuple[str, ...]: ...

    def spaces(self) -> tuple[spaces.Space[Any], spaces.Space[Any]]:
        """New observation and action space."""
        ...

    def start(self, case: Any, seed: int) -> Play: ...


@dataclass(frozen=True)
class TextGame:
    """Observation: the prompt. Action: the reply; one that is none of the choices is a format error, as it is of a
    language model."""

    scene: Scene

    @property
    def agents(self) -> tuple[str, ...]:
        return self.scene.agents

    def spaces(self) -> tuple[Unicode, Unicode]:
        return Unicode(MAX_TEXT), Unicode(MAX_TEXT)

    def start(self, case: Any, seed: int) -> TextPlay:
        return TextPlay(SteppedEpisode(self.scene, case, seed=seed))


@dataclass(frozen=True)
class TextPlay:
    paused: SteppedEpisode

    def observe(self, place: int | None) -> str:
        return PromptText("" if place is None else self.paused.acts[place].prompt)

    def act(self, place: int, action: object) -> None:
        if not isinstance(action, str):
            raise InvalidAction(f"A reply is a str, not {type(action).__name__}: {action!r}")
        self.paused.answer(place, Completion(action))


@dataclass(frozen=True)
class Codec:
    """Text to token ids and back. size: ids run from 0 to size - 1; end: the id that ends a reply."""

    encode: Callable[[str], Sequence[int]]
    decode: Callable[[Sequence[int]], str]
    size: int
    end: int


def _bytes_to_text(ids: Sequence[int]) -> str:
    return bytes(i for i in ids if i < 256).decode("utf-8", errors="replace")


BYTES = Codec(lambda text: list(text.encode()), _bytes_to_text, size=257, end=256)


def codec_of(tokenizer: Any) -> Codec:
    """The codec of a transformers tokenizer; prompts as the engines encode them."""
    from ghar.llm.model_facts import facts_of
    from ghar.llm.tokens import encode_prompt

    return Codec(
        lambda text: encode_prompt(tokenizer, text),
        lambda ids: tokenizer.decode(ids, skip_special_tokens=True),
        len(tokenizer),
        facts_of(tokenizer).end,
    )


@dataclass(frozen=True)
class TokenGame:
    """Observation: int32 [4 + context] of phase (1 + index of the role; 0: nothing to decide), number of choices
    (0: a free reply), tokens left of the reply, number of token ids, and the ids: prompt, then reply so far.
    Action: with choices, the index of one; otherwise the next token id of the reply. The mask says which are allowed.
    """

    scene: Scene
    codec: Codec = BYTES
    context: int = 4096

    @property
    def agents(self) -> tuple[str, ...]:
        return self.scene.agents

    def spaces(self) -> tuple[spaces.Dict, Allowed]:
        high = max(self.codec.size, self.context, len(self.scene.roles))
        box = spaces.Box(0, high, (HEADER + self.context,), np.int32)
        return masked(box, self.codec.size), Allowed(self.codec.size)

    def start(self, case: Any, seed: int) -> TokenPlay:
        return TokenPlay(self, SteppedEpisode(self.scene, case, seed=seed))


@dataclass(eq=False)
class TokenPlay:
    """tokens: by place, the prompt's ids and those of the reply so far, until it is whole."""

    game: TokenGame
    paused: SteppedEpisode
    tokens: dict[int, tuple[tuple[int, ...], list[int]]] = field(default_factory=dict)

    def observe(self, place: int | None) -> dict[str, np.ndarray]:
        seen = np.zeros(HEADER + self.game.context, np.int32)
        if place is None:
            return {"observation": seen, "action_mask": only_waiting(self.game.codec.size)}
        act, (prompt, reply) = self.paused.acts[place], self._encode(place)
        ids = (*prompt, *reply)
        if len(ids) > self.game.context:
            raise BadInput(f"A prompt needs {len(ids)} tokens: make the game with a context above {self.game.context}.")
        phase = 1 + self.game.scene.roles.index(act.role)
        seen[:HEADER] = phase, len(act.choices), self._left(act, reply), len(ids)
        seen[HEADER : HEADER + len(ids)] = ids
        return {"observation": seen, "action_mask": self._mask(act)}

    def act(self, place: int, action: object) -> None:
        act, (prompt, reply) = self.paused.acts[place], self._encode(place)
        chosen = within(action, self._mask(act))
        if act.choices:
            self._finish(place, Completion(act.choices[chosen], prompt))
            return
        reply.append(chosen)
        ended = chosen == self.game.codec.end
        if ended or not self._left(act, reply):
            text = self.game.codec.decode(reply[:-1] if ended else reply)
            finish = "stop" if ended else "length"
            self._finish(place, Completion(text, prompt, tuple(reply), finish_reason=finish))

    def _encode(self, place: int) -> tuple[tuple[int, ...], list[int]]:
        if place not in self.tokens:
            self.tokens[place] = (tuple(self.game.codec.encode(self.paused.acts[place].prompt)), [])
        return self.tokens[place]

    def _mask(self, act: Act) -> np.ndarray:
        mask = np.zeros(self.game.codec.size, np.int8)
        mask[: len(act.choices) or self.game.codec.size] = 1
        return mask

    def _left(self, act: Act, reply: Sequence[int]) -> int:
        return 1 if act.choices else act.max_tokens - len(reply)

    def _finish(self, place: int, completion: Completion) -> None:
        del self.tokens[place]
        self.paused.answer(place, completion)


def only_waiting(actions: int) -> np.ndarray:
    """The mask of an agent with nothing to decide: action 0, for whoever must name one all the same."""
    mask = np.zeros(actions, np.int8)
    mask[0] = 1
    return mask


def within(action: object, mask: np.ndarray) -> int:
    """The action as an int. Raises InvalidAction for what is no whole number, or not in the mask."""
    if isinstance(action, bool) or not isinstance(action, int | np.integer):
        raise InvalidAction(f"An action is a whole number, not {type(action).__name__}: {action!r}")
    if not 0 <= action < len(mask) or not mask[action]:
        allowed = np.flatnonzero(mask)
        choices = ", ".join(map(str, allowed[:8])) + (" ..." if len(allowed) > 8 else "")
        raise InvalidAction(f"Action {action} is outside the action mask, which allows {choices} here.")
    return int(action)


def begin(game: Game, rng: Any, options: dict[str, Any] | None) -> Play:
    """A play of the case that `options` names, else of one that is drawn; both draws are made either way."""
    number, seed = int(rng.integers(len(game.scene.cases))), int(rng.integers(2**31))
    return game.start(game.scene.cases[(options or {}).get("case", number)], seed)


def about(play: Play, place: int) -> dict[str, Any]:
    """Who decides what, as plain values."""
    act = play.paused.acts[place]
    return {
        "agent": act.agent,
        "role": act.role,
        "choices": act.choices,
        "max_tokens": act.max_tokens,
        "step": act.step,
    }


def ending(play: Play) -> dict[str, Any]:
    """What came out of a finished play, as plain values (an Episode cannot be sent to another process)."""
    episode = play.paused.episode
    assert episode is not None
    return {
        "sample_id": episode.sample_id,
        "prediction": episode.prediction.label,
        "failure": episode.failure,
        "terms": dict(reward_of(play).terms),
    }


def earned(play: Play, agent: str | None = None) -> float:
    """What the play has been worth so far, to all agents together or to `agent`."""
    paused = play.paused
    if paused.episode is not None:
        return float(sum(reward_of(play).arriving(agent)))
    return 0.0 if paused.scene.so_far is None else paused.scene.so_far(next(iter(paused.acts.values())))


def reward_of(play: Play) -> EpisodeReward:
    """The reward of a finished play."""
    assert play.paused.episode is not None
    return play.paused.scene.reward(play.paused.episode, play.paused.case)
