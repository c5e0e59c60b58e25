"""Episodes as flat token arrays and a table of segments, from which masks, turns and agents are read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ghar.episode import Episode, Turn
from ghar.rewards.compose import EpisodeReward

Array = npt.NDArray[Any]

FINISH = ("stop", "length")


@dataclass(frozen=True)
class Segments:
    """The table, one entry a segment: arrays of length S. Segments 2r and 2r + 1 are prompt and completion of row r.

    row: the turn's place in the batch (one model context); episode: index among the kept episodes; agent, role,
        finish: indices into `Trajectories.agents`, `.roles` and FINISH; turn: index in the episode; version: of the
        weights that sampled it.
    start, end: token span, half open; empty where a fixed policy has no tokens.
    trainable: the tokens were sampled by the policy in training (never true of a prompt).
    reward: float64 [S], what arrives at the segment's end; agent_reward: float64 [S, A], as each agent sees it
        (equal to `reward` in the shared composition, own terms only in the separate one).
    truncated: something other than the policy cut the episode short (`Episode.cut`), so that its end is no termination.
    """

    row: Array
    episode: Array
    agent: Array
    role: Array
    turn: Array
    start: Array
    end: Array
    trainable: Array
    reward: Array
    agent_reward: Array
    finish: Array
    version: Array
    truncated: Array

    def __len__(self) -> int:
        return len(self.row)

    def take(self, index: Array) -> Segments:
        """The segments at `index`, columns otherwise unchanged."""
        return Segments(**{column.name: getattr(self, column.name)[index] for column in fields(self)})


@dataclass(frozen=True)
class Row:
    """One model context: `tokens[:prompt]` was read, the rest was sampled. `start`: offset in the flat arrays."""

    index: int
    start: int
    prompt: int
    tokens: Array
    logprobs: Array
    choice_ids: tuple[tuple[int, ...], ...]
    agent: int
    role: int
    trainable: bool


@dataclass(frozen=True)
class Trajectories:
    """A batch of episodes.

    tokens: int64 [T], rows one after the other, token ids exactly as sampled. logprobs: float32 [T], of the behaviour
    policy under the distribution that was really sampled from (choices included), 0 on prompts.
    choice_ids: per row, the token sequences its reply was restricted to (empty when free).
    sample_ids: per kept episode; failed: number of episodes left out because they failed.
    separate: every agent is rewarded with its own terms only (`EpisodeReward.composition`), so one agent's tokens have
    nothing to gain from the other's rewards.
    """

    tokens: Array
    logprobs: Array
    segments: Segments
    choice_ids: tuple[tuple[tuple[int, ...], ...], ...]
    sample_ids: tuple[str, ...]
    agents: tuple[str, ...]
    roles: tuple[str, ...]
    failed: int = 0
    separate: bool = False

    @property
    def mask(self) -> Array:
        """bool [T]: trainable tokens."""
        mask = np.zeros(len(self.tokens), dtype=bool)
        table = self.segments
        mask[spans(table.start[table.trainable], table.end[table.trainable])] = True
        return mask

    @property
    def trainable_tokens(self) -> int:
        """How many tokens the losses are about."""
        table = self.segments
        return int((table.end - table.start)[table.trainable].sum())

    def rows(self) -> Iterator[Row]:
        """Every row in order."""
        table = self.segments
        for r, choices in enumerate(self.choice_ids):
            start, middle, end = int(table.start[2 * r]), int(table.end[2 * r]), int(table.end[2 * r + 1])
            yield Row(
                index=r,
                start=start,
                prompt=middle - start,
                tokens=self.tokens[start:end],
                logprobs=self.logprobs[start:end],
                choice_ids=choices,
                agent=int(table.agent[2 * r]),
                role=int(table.role[2 * r]),
                trainable=bool(table.trainable[2 * r + 1]),
            )


def spans(start: Array, end: Array) -> Array:
    """int64: the positions of several half-open spans, one span after the other."""
    length = end - start
    before = np.cumsum(length) - length
    return np.repeat(start - before, length) + np.arange(int(length.sum()))


def build(
    episodes: Sequence[Episode],
    rewards: Sequence[EpisodeReward],
    agents: tuple[str, ...],
    roles: tuple[str, ...],
) -> Trajectories:
    """Flatten episodes; `rewards` are theirs in the same order. Failed episodes are left out and counted.

    Errors: ValueError where a trainable turn lacks behaviour log-probs, an agent or role is unknown, or some rewards
    are shared and others separate.
    """
    kept = [(e, r) for e, r in zip(episodes, rewards, strict=True) if e.failure is None]
    turns = [part for episode, _ in kept for turn in episode.turns for part in _parts(turn)]
    for turn in turns:
        _check(turn, agents, roles)
    compositions = {reward.composition for _, reward in kept}
    if len(compositions) > 1:
        raise ValueError(f"a batch of {len(compositions)} reward compositions {sorted(compositions)}: give one")
    tokens = [ids for turn in turns for ids in (turn.completion.prompt_ids, turn.completion.token_ids)]
    logprobs = [p for turn in turns for p in ([0.0] * len(turn.completion.prompt_ids), _logprobs(turn))]
    lengths = np.array([len(ids) for ids in tokens], dtype=np.int64)
    ends = np.cumsum(lengths)
    return Trajectories(
        tokens=np.array([i for ids in tokens for i in ids], dtype=np.int64),
        logprobs=np.array([p for part in logprobs for p in part], dtype=np.float32),
        segments=_table(kept, turns, ends - lengths, ends, agents, roles),
        choice_ids=tuple(turn.completion.choice_ids for turn in turns),
        sample_ids=tuple(episode.sample_id for episode, _ in kept),
        failed=len(episodes) - len(kept),
        agents=agents,
        roles=roles,
        separate="separate" in compositions,
    )


def _table(
    kept: Sequence[tuple[Episode, EpisodeReward]],
    turns: Sequence[Turn],
    start: Array,
    end: Array,
    agents: tuple[str, ...],
    roles: tuple[str, ...],
) -> Segments:
    counts = [sum(len(turn.completion.parts) for turn in episode.turns) for episode, _ in kept]

    def both(values: Sequence[Any] | Array, dtype: type) -> Array:
        return np.repeat(np.array(values, dtype=dtype), 2)

    def at_end(values: Sequence[float]) -> Array:
        return np.stack([np.zeros(len(values)), np.array(values, dtype=np.float64)], axis=1).ravel()

    trainable = np.zeros(2 * len(turns), dtype=bool)
    trainable[1::2] = [turn.trainable and len(turn.completion.token_ids) > 0 for turn in turns]
    arriving = [at_end(_arriving(kept, agent)) for agent in agents]
    return Segments(
        row=both(range(len(turns)), np.int64),
        episode=both(np.repeat(np.arange(len(kept)), counts), np.int64),
        agent=both([agents.index(turn.agent) for turn in turns], np.int64),
        role=both([roles.index(turn.role) for turn in turns], np.int64),
        turn=both([turn.index for turn in turns], np.int64),
        start=start,
        end=end,
        trainable=trainable,
        reward=at_end(_arriving(kept, None)),
        agent_reward=np.stack(arriving, axis=1),
        finish=both([FINISH.index(turn.completion.finish_reason) for turn in turns], np.int64),
        version=both([turn.completion.version for turn in turns], np.int64),
        truncated=both(np.repeat([episode.cut for episode, _ in kept], counts), bool),
    )


def _parts(turn: Turn) -> list[Turn]:
    """A turn once for each part of its reply: every part is a row, in the context it was sampled in."""
    return [replace(turn, completion=part) for part in turn.completion.parts] if turn.completion.before else [turn]


def _arriving(kept: Sequence[tuple[Episode, EpisodeReward]], agent: str | None) -> list[float]:
    """What arrives at each row's end: a turn's reward at its last one."""
    rewards: list[float] = []
    for episode, reward in kept:
        for turn, value in zip(episode.turns, reward.arriving(agent), strict=True):
            rewards += [*[0.0] * (len(turn.completion.parts) - 1), value]
    return rewards


def _check(turn: Turn, agents: tuple[str, ...], roles: tuple[str, ...]) -> None:
    done = turn.completion
    if turn.agent not in agents or turn.role not in roles:
        names = f"agent {turn.agent} and role {turn.role}"
        raise ValueError(f"turn {turn.index} has {names}, which its system does not declare: {agents}, {roles}")
    if done.finish_reason not in FINISH:
        raise ValueError(f"turn {turn.index}: finish reason {done.finish_reason!r} is none of {FINISH}")
    if turn.trainable and len(done.logprobs) != len(done.token_ids):
        raise ValueError(f"turn {turn.index}: {len(done.logprobs)} log-probs for {len(done.token_ids)} sampled tokens")


def _logprobs(turn: Turn) -> Sequence[float]:
    return turn.completion.logprobs if turn.trainable else [0.0] * len(turn.completion.token_ids)
