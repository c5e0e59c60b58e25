"""Credit assignment: generalised advantage estimation over trainable tokens only (token, turn, bi-level, per agent).

A stream is what one advantage recursion runs over: the trainable tokens of an episode, or of one agent in it. Prompts,
retrieved text and the turns of fixed policies are not in it; which tokens are is read from the segment table alone.
"""

from collections.abc import Callable
from typing import Literal

import numpy as np

from ghar.trainers.rl.trajectory import Array, Trajectories, spans


def credit(
    traj: Trajectories,
    values: Array,
    *,
    mode: Literal["token", "turn", "bilevel"],
    per_agent: bool,
    gamma: float,
    lam: float,
    bootstrap: Array | None = None,
) -> tuple[Array, Array]:
    """Advantages and returns, float32 [T], 0 on untrainable tokens.

    values: [T], the critic's value of the state before each token; read on trainable tokens only.
    per_agent: one stream per agent of an episode, each with the rewards that agent sees, instead of one per episode.
    Separately rewarded agents (`Trajectories.separate`) have streams of their own whatever it says: in a common one,
    each would be credited with what the other earns, and the ablation NS would ablate nothing.
    bootstrap: [E, A], value of the state at which an episode was cut, by each agent's head (default 0); one that ended
    is followed by 0. A stream is closed by the head of the agent that acts last in it, an agent's own by its own.

    With V_t the value before element t, r_t what arrives after it and δ_t = r_t + γ V_{t+1} - V_t, GAE is
    A_t = δ_t + γλ A_{t+1} and the return is A_t + V_t (A_t of Eq. 16, GHAR). A segment's reward sits on its last token.
    token: elements are tokens.
    turn: elements are turns, V_k is the value at the turn's first token; all its tokens share A_k and the return.
    bilevel: GAE first over turns with V_k the value at the turn's *last* token; that A_k is the last token's advantage,
        from which GAE goes on backwards through the turn: A_t = γ V_{t+1} - V_t + γλ A_{t+1} (the idea of VAGEN).
    """
    advantages = np.zeros(len(traj.tokens))
    returns = np.zeros(len(traj.tokens))
    values = np.asarray(values, dtype=np.float64)
    after = np.zeros((len(traj.sample_ids), len(traj.agents)))
    if bootstrap is not None:
        after += bootstrap
    table = traj.segments
    for agent in range(len(traj.agents)) if per_agent or traj.separate else (None,):
        segments, rewards = _stream(traj, agent)
        start, end = table.start[segments], table.end[segments]
        tokens = spans(start, end)
        closing = np.where(table.truncated[segments], after[table.episode[segments], table.agent[segments]], 0.0)
        stream = _MODES[mode](values[tokens], end - start, rewards, table.episode[segments], closing, gamma, lam)
        advantages[tokens], returns[tokens] = stream
    return advantages.astype(np.float32), returns.astype(np.float32)


def _stream(traj: Trajectories, agent: int | None) -> tuple[Array, Array]:
    """Trainable segments (of `agent`) in the order they were played, and the reward that arrives at each one's end.

    What arrives at any other segment moves to the last trainable one before it in the episode: its cause, as far as the
    policy goes. Where there is none before it, nothing in this stream caused it.
    """
    table = traj.segments
    order = np.lexsort((np.arange(len(table)), table.turn, table.episode))
    inside = table.trainable[order] & (agent is None or table.agent[order] == agent)
    reward = (table.reward if agent is None else table.agent_reward[:, agent])[order]
    episode = table.episode[order]
    last = np.maximum.accumulate(np.where(inside, np.arange(len(order)), -1))
    caused = (last >= 0) & (episode[last] == episode)
    arriving = np.bincount(last[caused], weights=reward[caused], minlength=len(order))
    return order[inside], arriving[inside]


def _token(
    values: Array, length: Array, rewards: Array, episode: Array, closing: Array, gamma: float, lam: float
) -> tuple[Array, Array]:
    r = np.zeros(len(values))
    r[np.cumsum(length) - 1] = rewards
    after = np.repeat(closing, length)
    advantages = gae(values, r, np.repeat(episode, length), after, gamma, lam)
    return advantages, advantages + values


def _turn(
    values: Array, length: Array, rewards: Array, episode: Array, closing: Array, gamma: float, lam: float
) -> tuple[Array, Array]:
    first = values[np.cumsum(length) - length]
    advantages = gae(first, rewards, episode, closing, gamma, lam)
    return np.repeat(advantages, length), np.repeat(advantages + first, length)


def _bilevel(
    values: Array, length: Array, rewards: Array, episode: Array, closing: Array, gamma: float, lam: float
) -> tuple[Array, Array]:
    last = np.cumsum(length) - 1
    of_turn = gae(values[last], rewards, episode, closing, gamma, lam)
    # Within a turn: a recursion that ends in the turn's advantage. As "reward" of the last token, A_k + V_k makes
    # its δ, and so its advantage, exactly A_k.
    r = np.zeros(len(values))
    r[last] = of_turn + values[last]
    turn = np.repeat(np.arange(len(length)), length)
    advantages = gae(values, r, turn, np.zeros(len(values)), gamma, lam)
    return advantages, advantages + values


_MODES = {"token": _token, "turn": _turn, "bilevel": _bilevel}


def gae(values: Array, rewards: Array, group: Array, closing: Array, gamma: float, lam: float) -> Array:
    """A_t = δ_t + γλ A_{t+1} within runs of equal `group`; float64 [N].

    All arguments [N]; closing: the value that follows a run, read at its last element. One step of the loop goes one
    element back in every run at once, longest runs first, so it takes as many steps as the longest run has elements.
    """
    if len(values) == 0:
        return np.zeros(0)
    last = np.flatnonzero(np.append(group[1:] != group[:-1], True))
    length = np.diff(last, prepend=-1)
    next_values = np.append(values[1:], 0.0)
    next_values[last] = closing[last]
    deltas = rewards + gamma * next_values - values
    by_length = np.argsort(-length, kind="stable")
    last, shortness = last[by_length], -length[by_length]
    advantages = deltas.copy()
    active = len(last)
    for back in range(1, -int(shortness[0])):
        active = int(np.searchsorted(shortness[:active], -back, side="left"))
        here = last[:active] - back
        advantages[here] += gamma * lam * advantages[here + 1]
    return advantages


def episode_rewards(traj: Trajectories, *, per_agent: bool) -> Array:
    """float32 [T]: an episode's whole reward (as the token's agent sees it) on each of its trainable tokens, else 0.

    The value target of Eq. 17, GHAR, read literally: V is regressed on the shared reward, not on returns. `credit`'s
    returns are the default, because a literal target knows nothing of when a reward arrives.
    """
    table = traj.segments
    episodes, agents = len(traj.sample_ids), len(traj.agents)
    totals = np.zeros((episodes, agents))
    np.add.at(totals, table.episode, table.agent_reward if per_agent or traj.separate else table.reward[:, None])
    target = np.zeros(len(traj.tokens), dtype=np.float32)
    kept = table.trainable
    length = (table.end - table.start)[kept]
    target[spans(table.start[kept], table.end[kept])] = np.repeat(
        totals[table.episode[kept], table.agent[kept]], length
    )
    return target


def whiten(
    advantages: Array,
    traj: Trajectories,
    per_agent: bool = True,
    reduce: Callable[[Array], Array] = lambda sums: sums,
    weights: Array | None = None,
) -> Array:
    """Zero mean, unit variance over trainable tokens, of each agent alone or of all together; float32 [T], 0 elsewhere.

    reduce: adds a small float64 array over all ranks, so that many processes whiten as one would. weights: [N], what
    each trainable token counts in the policy loss (None: all alike); the mean of the loss is then that of an agent's
    advantages, 0. An agent whose advantages are all equal has nothing to learn from them and gets 0.
    """
    table = traj.segments
    kept = table.trainable
    index = spans(table.start[kept], table.end[kept])
    groups = len(traj.agents) if per_agent else 1
    agent = table.agent[kept] if per_agent else np.zeros_like(table.agent[kept])
    group = np.repeat(agent, (table.end - table.start)[kept])
    x = np.asarray(advantages, dtype=np.float64)[index]
    own = np.ones(len(x)) if weights is None else weights
    count, total = reduce(
        np.stack([np.bincount(group, own, minlength=groups), np.bincount(group, own * x, minlength=groups)])
    )
    size = np.where(count > 0, count, 1.0)  # of replies or episodes, an agent's share may be below 1
    centred = x - (total / size)[group]
    variance = reduce(np.bincount(group, own * centred**2, minlength=groups)) / size
    out = np.zeros(len(traj.tokens), dtype=np.float32)
    out[index] = centred / np.sqrt(variance + 1e-8)[group]
    return out
