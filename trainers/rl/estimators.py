"""Critic-free advantages: what an episode earned, against other attempts at the same sample or against the whole batch.

Each function gives what `credit.credit` does: advantages and returns, float32 [T], 0 on untrainable tokens.
Rewards are not discounted. Separately rewarded agents (`Trajectories.separate`) are compared by their own rewards, with
attempts in which they acted. A cut episode's outcome is unknown and no critic can stand in for it: it teaches nothing
and is no one's baseline.

`everyone` adds the lists of all processes up in order of rank, so that attempts may lie in several of them. `telling`
leaves out patients whose attempts do not differ.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.credit import whiten
from ghar.trainers.rl.trajectory import Array, Trajectories, spans
from ghar.trainers.runs.distributed import gather

Estimator = Literal["grpo", "rloo", "reinforce_pp", "turn_group"]
Everyone = Callable[[list[Any]], list[Any]]
EPSILON = 1e-4  # keeps rounding from being scaled up where all attempts earned the same
ALIKE = 1e-6  # rewards this close are the same


def grpo(traj: Trajectories, everyone: Everyone = list) -> tuple[Array, Array]:
    """(R - mean) / std of the episode's reward among the attempts at its sample (Shao et al. 2024, "DeepSeekMath")."""
    return _of_episodes(traj, everyone, lambda own, group: (own - group.mean()) / (group.std() + EPSILON))


def rloo(traj: Trajectories, everyone: Everyone = list) -> tuple[Array, Array]:
    """The episode's reward less the mean of the *other* attempts, an unbiased baseline (Ahmadian et al. 2024, "Back to
    Basics")."""
    return _of_episodes(traj, everyone, _leave_one_out)


def turn_group(traj: Trajectories, everyone: Everyone = list) -> tuple[Array, Array]:
    """What is still earned from a turn on, less the mean of that at the same decision in the other attempts.

    The same decision: the n-th of its role in the episode. One that no other attempt came to has nothing to be compared
    with, and advantage 0.
    """
    traj = _whole(traj)
    table, kept, to_go = traj.segments, _in_order(traj), _to_go(traj)
    met: Counter[tuple[int, ...]] = Counter()
    keys: list[Hashable] = []
    for episode, agent, role in zip(table.episode[kept], table.agent[kept], table.role[kept], strict=True):
        keys.append((traj.sample_ids[episode], int(agent), int(role), met[episode, agent, role]))
        met[episode, agent, role] += 1
    advantages = _against_peers(keys, to_go, everyone, _leave_one_out)
    return _on_tokens(traj, kept, advantages), _on_tokens(traj, kept, to_go)


def reinforce_pp(traj: Trajectories, reduce: Callable[[Array], Array] = lambda sums: sums) -> tuple[Array, Array]:
    """What is still earned from a turn on, whitened over the tokens of the whole batch (Hu 2025, "REINFORCE++").

    It needs one attempt only. reduce: as for `credit.whiten`. Separately rewarded agents, whose rewards are
    of different kinds, are whitened each alone.
    """
    traj = _whole(traj)
    returns = _on_tokens(traj, _in_order(traj), _to_go(traj))
    return whiten(returns, traj, per_agent=traj.separate, reduce=reduce), returns


def estimate(
    traj: Trajectories, estimator: Estimator, everyone: Everyone, reduce: Callable[[Array], Array]
) -> tuple[Array, Array]:
    """Advantages and returns by the estimator of that name; ValueError where it compares attempts and there are none
    to compare: every sample of the batch was played once."""
    if estimator == "reinforce_pp":
        return reinforce_pp(traj, reduce)
    return {"grpo": grpo, "rloo": rloo, "turn_group": turn_group}[estimator](traj, everyone)


def _of_episodes(traj: Trajectories, everyone: Everyone, rule: Callable[[float, Array], float]) -> tuple[Array, Array]:
    """One advantage for all tokens of an episode (of an agent in it, where agents are rewarded separately)."""
    traj = _whole(traj)
    table, kept = traj.segments, _in_order(traj)
    totals = np.zeros((len(traj.sample_ids), len(traj.agents)))
    np.add.at(totals, table.episode, table.agent_reward)  # all columns are alike where the reward is shared
    agent = table.agent[kept] if traj.separate else np.zeros_like(kept)
    streams, of = np.unique(np.stack([table.episode[kept], agent], axis=1), axis=0, return_inverse=True)
    values = totals[streams[:, 0], streams[:, 1]]
    keys = [(traj.sample_ids[episode], int(agent)) for episode, agent in streams]
    advantages = _against_peers(keys, values, everyone, rule)
    return _on_tokens(traj, kept, advantages[of]), _on_tokens(traj, kept, values[of])


def _against_peers(
    keys: Sequence[Hashable], values: Array, everyone: Everyone, rule: Callable[[float, Array], float]
) -> Array:
    """`rule` of each value and all values of its key, in all processes; 0 where there is but one."""
    groups: dict[Hashable, list[float]] = {}
    for key, value in everyone(list(zip(keys, values.tolist(), strict=True))):
        groups.setdefault(key, []).append(value)
    if groups and max(map(len, groups.values())) == 1:
        raise ValueError("every sample was played once, so there are no attempts to compare: play several of each")
    arrays = {key: np.array(group) for key, group in groups.items()}
    return np.array(
        [rule(v, arrays[key]) if len(arrays[key]) > 1 else 0.0 for key, v in zip(keys, values, strict=True)]
    )


def _leave_one_out(own: float, every: Array) -> float:
    return own - (every.sum() - own) / (len(every) - 1)


def _whole(traj: Trajectories) -> Trajectories:
    """Without the cut episodes' trainable tokens."""
    table = traj.segments
    return replace(traj, segments=replace(table, trainable=table.trainable & ~table.truncated))


def _in_order(traj: Trajectories) -> Array:
    """Trainable segments in the order they were played."""
    table = traj.segments
    order = np.lexsort((np.arange(len(table)), table.turn, table.episode))
    return order[table.trainable[order]]


def _to_go(traj: Trajectories) -> Array:
    """float64: for each segment of `_in_order`, what arrives for its agent at its end and after it in the episode."""
    table = traj.segments
    order = np.lexsort((np.arange(len(table)), table.turn, table.episode))
    reward = table.agent_reward[order]
    left = np.zeros((len(traj.sample_ids), len(traj.agents)))
    to_go = np.zeros(reward.shape)
    for place in range(len(order) - 1, -1, -1):  # backwards: no difference of large sums
        episode = table.episode[order[place]]
        left[episode] += reward[place]
        to_go[place] = left[episode]
    kept = table.trainable[order]
    return to_go[kept, table.agent[order[kept]]]


def _on_tokens(traj: Trajectories, segments: Array, values: Array) -> Array:
    """float32 [T]: each segment's value on its tokens."""
    start, end = traj.segments.start[segments], traj.segments.end[segments]
    out = np.zeros(len(traj.tokens), np.float32)
    out[spans(start, end)] = np.repeat(values, end - start)
    return out


def telling(sample_ids: Sequence[str], rewards: Sequence[EpisodeReward]) -> Array:
    """bool per episode: whether the attempts at its patient earned different rewards (dynamic sampling, Yu et al. 2025,
    "DAPO"). Against each other, attempts that all earned the same have no advantage; all are kept where no one's
    attempts differ in any process, so that an update always has something to look at. Every process calls it with all
    attempts at its own patients."""
    totals: dict[str, list[float]] = {}
    for sample, reward in zip(sample_ids, rewards, strict=True):
        totals.setdefault(sample, []).append(reward.total)
    kept = np.array([max(totals[s]) - min(totals[s]) > ALIKE for s in sample_ids])
    return kept if any(gather(bool(kept.any()))) else np.ones(len(kept), bool)
