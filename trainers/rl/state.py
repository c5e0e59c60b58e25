"""What a centralised critic reads: an episode as one text, and plain numbers about it so far.

A prompt shows an agent what it needs for its decision; the state of an episode is more: everything that any agent was
shown or has said until then. So the turns are joined into one text in which each passage stands once, and a causal
model reads every state of the episode in a single pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ghar.trainers.rl.trajectory import FINISH, Array, Trajectories

PASSAGE = 8  # so many tokens in a row that stood in the episode before are not written again
KEPT = 2  # last tokens of a prompt, which always are: what the reply follows on
ABOUT = 9  # numbers of `_numbers` that do not belong to a role


@dataclass(frozen=True)
class State:
    """An episode's text of L tokens and its n states, each of them before something sampled in training.

    tokens: int64 [L]; position: int64 [n], the token a state ends with; agent: int64 [n], who acts next;
    numbers: float32 [n, F], see `_numbers`; where: int64 [n], index in `Trajectories.tokens` of what is sampled next;
    after: float32 [F], the numbers of the state that the last turn left behind; episode: index in the trajectories;
    last: row of its last turn.
    """

    tokens: Array
    position: Array
    agent: Array
    numbers: Array
    where: Array
    after: Array
    episode: int
    last: int

    def end(self, agents: int) -> State:
        """The state after the last turn alone, before an act of each agent."""
        return replace(
            self,
            position=np.full(agents, len(self.tokens) - 1),
            agent=np.arange(agents),
            numbers=np.repeat(self.after[None], agents, axis=0),
            where=np.full(agents, -1),
        )


def width(roles: Sequence[str]) -> int:
    """F: how many numbers a state has."""
    return ABOUT + 3 * len(roles)


def states(traj: Trajectories, every_token: bool) -> list[State]:
    """Each episode that has something sampled in training; a state before each of its turns, or of its tokens."""
    table = traj.segments
    rows = np.arange(len(traj.choice_ids))
    order = np.lexsort((table.turn[2 * rows], table.episode[2 * rows]))
    cuts = np.flatnonzero(np.diff(table.episode[2 * order])) + 1
    candidates = (_state(traj, turns, every_token) for turns in np.split(order, cuts) if len(turns))
    return [state for state in candidates if len(state.position)]


def _state(traj: Trajectories, turns: Array, every_token: bool) -> State:
    table = traj.segments
    text, position, where = _Text(), [], []
    counted: list[Array] = []
    of_turn: list[int] = []
    for k, (row, numbers) in enumerate(zip(turns, _numbers(traj, turns), strict=False)):
        counted.append(numbers)
        prompt, reply = 2 * row, 2 * row + 1
        text.add_prompt(traj.tokens[table.start[prompt] : table.end[prompt]])
        if table.trainable[reply]:
            own = range(int(table.end[reply] - table.start[reply]) if every_token else 1)
            position += [len(text) - 1 + n for n in own]
            where += [int(table.start[reply]) + n for n in own]
            of_turn += [k] * len(own)
        text.add(traj.tokens[table.start[reply] : table.end[reply]])
    agent = table.agent[2 * turns][of_turn]
    *_, after = _numbers(traj, turns)
    numbers = np.array([counted[k] for k in of_turn], np.float32).reshape(len(of_turn), width(traj.roles))
    own = text.tokens(), np.array(position), agent, numbers, np.array(where)
    return State(*own, after, episode=int(table.episode[2 * turns[0]]), last=int(turns[-1]))


def _numbers(traj: Trajectories, turns: Array) -> Iterator[Array]:
    """float32 [F] of the state before each of an episode's `turns`, and of that after the last.

    Of the episode so far: turns, tokens read, tokens sampled, the mean and the least log-prob of these, the log-prob of
    the last reply, the share of replies that ran into their limit; the length of the first and of the next prompt; and
    by role: whether it is next, how often it has acted, and which of its choices it took last (the first 1, others -1).
    """
    table, roles = traj.segments, len(traj.roles)
    read, logp, least, last, endless = 0, [], 0.0, 0.0, 0
    acted, took = np.zeros(roles), np.zeros(roles)
    first = float(np.log1p(table.end[2 * turns[0]] - table.start[2 * turns[0]]))
    for k in range(len(turns) + 1):
        following, next_role = 0.0, np.zeros(roles)
        if k < len(turns):
            prompt = 2 * turns[k]
            following = float(np.log1p(table.end[prompt] - table.start[prompt]))
            next_role[table.role[prompt]] = 1.0
        mean = float(np.mean(logp)) if logp else 0.0
        about = [k / 4, np.log1p(read), np.log1p(len(logp)), mean, least, last, endless / max(k, 1), first, following]
        yield np.concatenate([about, next_role, acted / 2, took]).astype(np.float32)
        if k == len(turns):
            return
        reply, role = 2 * turns[k] + 1, table.role[2 * turns[k]]
        logprobs = traj.logprobs[table.start[reply] : table.end[reply]]
        read += int(table.end[2 * turns[k]] - table.start[2 * turns[k]])
        logp += logprobs.tolist()
        least, last = min([least, *logprobs.tolist()]), float(logprobs.sum())
        endless += int(FINISH[table.finish[reply]] == "length")
        acted[role] += 1
        choices = traj.choice_ids[turns[k]]
        if choices:
            tokens = tuple(traj.tokens[table.start[reply] : table.end[reply]].tolist())
            took[role] = 1.0 if tokens == choices[0] else -1.0


class _Text:
    """Tokens one after the other, without the passages that stand in them already."""

    def __init__(self) -> None:
        self.parts: list[Array] = []
        self.length = 0
        self.passages: set[bytes] = set()

    def __len__(self) -> int:
        return self.length

    def tokens(self) -> Array:
        """int64 [L]"""
        return np.concatenate(self.parts)

    def add_prompt(self, tokens: Array) -> None:
        """What of a prompt is new."""
        new = np.ones(len(tokens), bool)
        for start, passage in _passages(tokens):
            if passage in self.passages:
                new[start : start + PASSAGE] = False
        new[-KEPT:] = True
        self.passages.update(passage for _, passage in _passages(tokens))
        self._append(tokens[new])

    def add(self, tokens: Array) -> None:
        """A reply as it stands."""
        self._append(tokens)

    def _append(self, tokens: Array) -> None:
        self.parts.append(tokens)
        self.length += len(tokens)


def _passages(tokens: Array) -> Iterator[tuple[int, bytes]]:
    whole = np.ascontiguousarray(tokens, np.int64).tobytes()
    for start in range(len(tokens) - PASSAGE + 1):
        yield start, whole[8 * start : 8 * (start + PASSAGE)]
