"""What an update learns from: values, advantages and reference log-probs of a batch under the weights before it.

With `kl_estimator=reward` the KL term enters here, in what a turn earns (`kl_in_reward`); else it is part of the loss
(`mappo.total_loss`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ghar.llm.canary import WrongWeights
from ghar.trainers.rl import losses
from ghar.trainers.rl.actor_critic import ActorCritic, Scores
from ghar.trainers.rl.credit import credit, episode_rewards, whiten
from ghar.trainers.rl.critic import Critic
from ghar.trainers.rl.critic_baseline import CriticBaseline
from ghar.trainers.rl.estimators import estimate
from ghar.trainers.rl.fast.rows import allowed_ids
from ghar.trainers.rl.settings import MappoConfig
from ghar.trainers.rl.state import states
from ghar.trainers.rl.trajectory import Array, Row, Trajectories, spans
from ghar.trainers.runs.distributed import gather, gather_rows, world

Earlier: TypeAlias = Mapping[int, Mapping[str, Tensor]]  # version to trainable weights
NONE: Earlier = MappingProxyType({})
GUARDED = 16  # rows of each earlier version that the guard looks at, in each process


@dataclass(frozen=True)
class Targets:
    """What one token's losses are computed from; float32 [N] over trainable tokens, rows in order.

    old: log-probs Eq. 16's ratio is taken against: the engine's, or (corrected for the difference by a weight within
    `advantages`) the trainer's own before the update. weights: what each token counts in terms of the policy
    (`losses.token_weights`); value_weights: in the value loss, where states count before tokens without a choice too.
    """

    old: Tensor
    reference: Tensor | None
    values: Tensor
    advantages: Tensor
    returns: Tensor
    weights: Tensor
    value_weights: Tensor
    spread: float  # variance of all returns, at least 1: the unit the value loss is measured in

    def take(self, index: Array) -> Targets:
        """The tokens at `index`."""
        at = torch.as_tensor(index, device=self.values.device)
        return Targets(
            self.old[at],
            None if self.reference is None else self.reference[at],
            self.values[at],
            self.advantages[at],
            self.returns[at],
            self.weights[at],
            self.value_weights[at],
            self.spread,
        )


def prepare(
    actor: ActorCritic,
    rows: Sequence[Row],
    traj: Trajectories,
    cfg: MappoConfig,
    version: int | None = None,
    critic: Critic | None = None,
    yardstick: CriticBaseline | None = None,
    earlier: Earlier = NONE,
) -> tuple[Targets, dict[str, float]]:
    """Values, reference log-probs and advantages under the weights before the update, and what they tell.

    `rows` are the trainable rows of `traj`. critic: one of its own, None where the heads on the actor's trunk are it.
    yardstick: what it is measured against. earlier: trainable weights of versions before `version`, for the guard.
    """
    index = sampled(rows)
    old = actor.evaluate(rows, cfg.micro_tokens)
    reference = actor.reference_logp(rows, cfg.micro_tokens) if cfg.needs_reference else None
    if reference is not None and cfg.kl_estimator == "reward":
        traj = kl_in_reward(traj, rows, (old.logp - reference).cpu().numpy(), cfg.kl)
    values, after = _values(actor, old, rows, traj, cfg, critic)
    weights = token_weights(rows, traj, cfg.aggregate)
    advantages, returns = _credited(traj, values, after, cfg, weights)
    device = actor.device
    behaviour = torch.as_tensor(traj.logprobs[index], device=device)
    apart = old.logp - behaviour
    guarded = _guarded(actor, rows, traj, apart.cpu().double().numpy(), cfg, version, earlier)
    agree = _agreement(apart, guarded, cfg.mismatch_limit)
    weighed = torch.as_tensor(advantages[index], device=device)
    if cfg.importance_cap is not None:
        weighed = weighed * losses.truncated_importance(old.logp, behaviour, cfg.importance_cap)
    targets = Targets(
        old=behaviour if cfg.importance_cap is None else old.logp,
        reference=reference,
        values=torch.as_tensor(values[index], device=device),
        advantages=weighed,
        returns=torch.as_tensor(returns[index], device=device),
        weights=weights.to(device),
        value_weights=token_weights(rows, traj, cfg.aggregate, every=True).to(device),
        spread=max(1.0, float(gathered(returns[index][None].astype(np.float64)).var())),
    )
    agents = _per_token([row.agent for row in rows], rows)
    report = agree | _report(old, targets, agents, traj)
    if reference is not None:
        report["kl/reference"] = float(gathered((old.logp - reference).cpu().double().numpy()[None]).mean())
    if cfg.has_critic:
        report |= _worth(traj, values, after, cfg, yardstick or CriticBaseline())
    return targets, report


def kl_in_reward(traj: Trajectories, rows: Sequence[Row], difference: Array, weight: float) -> Trajectories:
    """With the KL term in the reward, as in Ziegler et al. 2019 (Eq. 2): what a turn earns, for every agent, less
    weight * Σ over its sampled tokens of log π - log π_ref (`difference` [N]). It arrives at the turn's end."""
    lengths = np.array([len(row.tokens) - row.prompt for row in rows], np.int64)
    cost = np.zeros(len(traj.segments))
    turn = np.repeat([2 * row.index + 1 for row in rows], lengths)
    np.add.at(cost, turn, weight * difference.astype(np.float64))
    table = traj.segments
    table = replace(table, reward=table.reward - cost, agent_reward=table.agent_reward - cost[:, None])
    return replace(traj, segments=table)


def sampled(rows: Sequence[Row]) -> Array:
    """int64 [N]: where the rows' sampled tokens are in the trajectories."""
    return spans(
        np.array([row.start + row.prompt for row in rows], np.int64),
        np.array([row.start + len(row.tokens) for row in rows], np.int64),
    )


def _values(
    actor: ActorCritic, old: Scores, rows: Sequence[Row], traj: Trajectories, cfg: MappoConfig, critic: Critic | None
) -> tuple[Array, Array]:
    """Values of the states before sampled tokens, float32 [T], and after cut episodes [E, A]; zero elsewhere, which for
    a critic of its own and credit="turn" is everywhere but at a turn's first token."""
    values = np.zeros(len(traj.tokens), np.float32)
    if not cfg.has_critic:
        return values, np.zeros((len(traj.sample_ids), len(traj.agents)))
    if critic is None:
        values[sampled(rows)] = old.values.cpu().numpy()
        return values, _bootstrap(actor, rows, traj, cfg)
    read = states(traj, cfg.credit != "turn")
    critic.observe(read, [earned(traj, values, cfg)[state.where] for state in read])
    for state, own in zip(read, critic.values(read), strict=True):
        values[state.where] = own
    after = np.zeros((len(traj.sample_ids), len(traj.agents)))
    cut = [state.end(len(traj.agents)) for state in read if traj.segments.truncated[2 * state.last]]
    for state, own in zip(cut, critic.values(cut), strict=True):
        after[state.episode] = own
    return values, after


def earned(traj: Trajectories, values: Array, cfg: MappoConfig, after: Array | None = None) -> Array:
    """What is really still earned from each sampled token on, float32 [T], whatever a critic says (`after` cut episodes
    excepted)."""
    how = {"mode": cfg.credit, "per_agent": cfg.per_agent, "gamma": cfg.gamma, "lam": 1.0}
    return credit(traj, values, **how, bootstrap=after)[1]


def _credited(
    traj: Trajectories, values: Array, after: Array, cfg: MappoConfig, weights: Tensor
) -> tuple[Array, Array]:
    """Advantages as the policy loss takes them, and returns, float32 [T]. weights: of the policy loss, [N]."""
    if cfg.estimator != "gae":
        return estimate(traj, cfg.estimator, gather_rows, _sum_array)
    advantages, returns = credit(
        traj, values, mode=cfg.credit, per_agent=cfg.per_agent, gamma=cfg.gamma, lam=cfg.lam, bootstrap=after
    )
    if cfg.critic_target == "reward":
        returns = episode_rewards(traj, per_agent=cfg.per_agent)
    return whiten(advantages, traj, reduce=_sum_array, weights=weights.double().numpy()), returns


def _worth(
    traj: Trajectories, values: Array, after: Array, cfg: MappoConfig, yardstick: CriticBaseline
) -> dict[str, float]:
    """What the critic's values explain of what was really earned, decision by decision, in all processes."""
    read, real = states(traj, every_token=False), earned(traj, values, cfg, after)
    columns = [np.stack([*s.numbers.T.astype(np.float64), values[s.where], real[s.where]]) for s in read]
    *numbers, predictions, returns = np.concatenate(gather_rows(columns), axis=1)
    return {"value/mean": float(predictions.mean()), **yardstick.measure(np.array(numbers).T, predictions, returns)}


def token_weights(
    rows: Sequence[Row], traj: Trajectories, aggregate: losses.Aggregate, every: bool = False
) -> Tensor:
    """float32 [N]: what each token counts; every episode lies in one process as a whole. every: of turns and episodes
    all tokens count, not only those that were chosen among several."""
    turn = _per_token([row.index for row in rows], rows)
    episode = _per_token([int(traj.segments.episode[2 * row.index]) for row in rows], rows)
    chosen = None
    if not every:
        chosen = torch.tensor([len(ids) != 1 for row in rows for ids in allowed_ids(row)], dtype=torch.bool)
    return losses.token_weights(torch.as_tensor(turn), torch.as_tensor(episode), aggregate, chosen)


def _guarded(
    actor: ActorCritic,
    rows: Sequence[Row],
    traj: Trajectories,
    apart: Array,
    cfg: MappoConfig,
    version: int | None,
    earlier: Earlier,
) -> Array:
    """float64 [N]: trainer's log-prob - behaviour log-prob under the very weights that sampled a token; NaN where it is
    not known.

    apart [N]: under today's weights, which are number `version`; with None all are taken to be theirs. Of each earlier
    version a few rows are scored once more, with its weights.
    """
    versions = np.array([traj.segments.version[2 * row.index] for row in rows], np.int64)
    here = np.ones(len(rows), bool) if version is None else versions == version
    gaps = np.where(_per_token(here.tolist(), rows) > 0, apart, np.nan)
    ends = np.cumsum([len(row.tokens) - row.prompt for row in rows])
    for number in sorted(earlier.keys() & set(versions[~here].tolist())):
        of_it = np.flatnonzero(versions == number)
        few = of_it[np.linspace(0, len(of_it) - 1, min(GUARDED, len(of_it))).astype(int)]
        some = [rows[i] for i in few]
        with actor.holding(earlier[number]):
            then = actor.evaluate(some, cfg.micro_tokens).logp.cpu().double().numpy()
        sizes = np.array([len(row.tokens) - row.prompt for row in some], np.int64)
        at = spans(ends[few] - sizes, ends[few])
        gaps[at] = then - traj.logprobs[sampled(some)]
    return gaps


def _per_token(values: Sequence[int], rows: Sequence[Row]) -> Array:
    """int64 [N]: a value of each row, for each of its sampled tokens."""
    lengths = np.array([len(row.tokens) - row.prompt for row in rows], np.int64)
    return np.repeat(np.array(values, np.int64), lengths)


def _agreement(difference: Tensor, guarded: Array, limit: float | None) -> dict[str, float]:
    """How far trainer and engine are apart on the sampled tokens, over all processes; WrongWeights above `limit`.

    difference [N]: trainer's log-prob - behaviour log-prob, zero up to rounding while both hold the same weights.
    mismatch/mean, mismatch/max: of its absolute value; mismatch/kl: KL(engine || trainer) by the k3 estimator;
    ess: effective sample size of the importance weights as a share of the tokens; guarded: share of the tokens that
    the guard looks at. It looks at `guarded` [N], where both hold the same weights however old (NaN: not known), since
    under today's weights older ones differ by right.
    """
    every, own = gathered(np.stack([difference.cpu().double().numpy(), guarded]))
    ratio, guarded = np.exp(every), np.abs(own[~np.isnan(own)])
    if limit is not None and len(guarded) and not guarded.mean() <= limit:
        raise WrongWeights(
            f"the engine's log-probs differ from the trainer's by {guarded.mean():.2g} nats a token (largest "
            f"{guarded.max():.2g}, allowed {limit:g}): the engine sampled with other weights, so the run stops here."
        )
    return {
        "mismatch/mean": float(np.abs(every).mean()),
        "mismatch/max": float(np.abs(every).max()),
        "mismatch/kl": float((ratio - 1 - every).mean()),
        "mismatch/guarded": len(guarded) / len(own),
        "ess": float(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum())),
    }


def _bootstrap(actor: ActorCritic, rows: Sequence[Row], traj: Trajectories, cfg: MappoConfig) -> Array:
    """[E, A]: value of the state a cut episode was cut at, which is after its last trained token, as the head of each
    agent sees it; 0 elsewhere."""
    table = traj.segments
    last = {int(table.episode[2 * row.index]): row for row in rows if table.truncated[2 * row.index]}
    after = np.zeros((len(traj.sample_ids), len(traj.agents)))
    if not last:
        return after
    # the value of a state is read where the next token would be predicted: append one that is never looked at
    cut = [replace(r, tokens=np.append(r.tokens, 0), prompt=len(r.tokens), choice_ids=()) for r in last.values()]
    for agent in range(len(traj.agents)):
        seen = [replace(row, agent=agent) for row in cut]
        after[list(last), agent] = actor.value_only(seen, cfg.micro_tokens).cpu().numpy()
    return after


def _report(old: Scores, targets: Targets, agents: Array, traj: Trajectories) -> dict[str, float]:
    """What else is known before the first step, over all processes; an agent's entropy is left out where it did not
    act."""
    table = (targets.returns, old.entropy)
    here = np.concatenate([np.stack([c.cpu().double().numpy() for c in table]), agents[None]])
    returns, entropy, agent = gathered(here)
    report = {"return/mean": float(returns.mean()), "tokens": float(len(returns))}
    for i, name in enumerate(traj.agents):
        if (agent == i).any():
            report[f"entropy/{name}"] = float(entropy[agent == i].mean())
    return report


def summed(value: Tensor, largest: bool = False) -> Tensor:
    """Sum (or maximum) over processes."""
    if world() > 1:
        dist.all_reduce(value, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return value


def _sum_array(value: Array) -> Array:
    return summed(torch.as_tensor(value)).numpy()


def gathered(columns: Array) -> Array:
    """[C, N] of this process to [C, all N]."""
    return np.concatenate(gather(columns), axis=1)
