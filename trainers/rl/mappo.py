"""One update of multi-agent PPO (Eqs. 16-18, GHAR): from a batch of episodes to new weights and diagnostics.

The paper's text leaves two things unsound, which both exist here: Eq. 16 takes the ratio against the reference policy
(default: against the behaviour policy, with a KL term to the reference), and Eq. 17 regresses V on the shared reward
(default: on returns).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from ghar.config import Config
from ghar.llm.canary import WrongWeights
from trainers.rl import losses
from trainers.rl.actor_critic import ActorCritic, Scores
from trainers.rl.credit import credit, episode_rewards, whiten
from trainers.rl.estimators import Estimator, estimate
from trainers.rl.learner import Learner, Plain
from trainers.rl.rows import micro_batches
from trainers.rl.trajectory import Array, Row, Trajectories, spans
from trainers.runs.distributed import gather, gather_rows, rank, world

# mean |trainer's - engine's log-prob| in nats: rounding stays far below, weights one update behind do not (in bfloat16
# rounding alone was measured at 0.002 to 0.011)
MISMATCH_LIMIT = {"float32": 1e-3, "bfloat16": 0.1}
VALUE_CLIP = 5.0  # how far one update may move a value, in units of reward
PARTS = ("loss/total", "loss/policy", "entropy", "old_approx_kl", "approx_kl", "clipfrac")


@dataclass(frozen=True)
class MappoConfig:
    """Settings of an update, named as in conf/trainer (`ghar.config.Rl`).

    epochs: passes over the batch; minibatches: optimiser steps a pass; micro_tokens: padded tokens a forward pass,
    which changes memory and not results; clip: ε of Eq. 16; value_clip: the same for values, in units of reward;
    gamma, lam, credit, per_agent: see `trainers.rl.credit`; kl, entropy, value_coef: weights of the loss terms;
    ratio="reference" and critic_target="reward": Eqs. 16 and 17 as printed; max_grad_norm: of the global norm.
    importance_cap: C of `losses.truncated_importance`, None where engine and trainer compute the same numbers;
    mismatch_limit: mean |trainer's - engine's log-prob| in nats above which an update stops the run, None: never.
    aggregate: what counts alike in every loss term and diagnostic, see `losses.token_weights`. Episodes are as long as
    they are in the batch, whatever part of them a minibatch drew. kl_estimator: see `losses.reference_kl`.
    estimator: "gae" (`trainers.rl.credit`), or one of `trainers.rl.estimators`, which need no critic: there is then no
    value loss, and value_clip, gamma, lam, credit, per_agent, critic_target and value_coef mean nothing.
    """

    epochs: int
    minibatches: int
    micro_tokens: int
    clip: float
    value_clip: float
    gamma: float
    lam: float
    credit: Literal["token", "turn", "bilevel"]
    per_agent: bool
    kl: float
    ratio: Literal["behaviour", "reference"]
    critic_target: Literal["returns", "reward"]
    value_coef: float
    entropy: float
    max_grad_norm: float
    importance_cap: float | None
    mismatch_limit: float | None
    aggregate: losses.Aggregate = "token"
    kl_estimator: losses.Kl = "k3"
    estimator: Literal["gae"] | Estimator = "gae"

    @property
    def needs_reference(self) -> bool:
        """Whether an update reads the reference policy (with full fine-tuning: whether to keep a copy of it)."""
        return self.kl > 0 or self.ratio == "reference"

    @property
    def has_critic(self) -> bool:
        """Whether advantages rest on values, which are then trained."""
        return self.estimator == "gae"


def settings_of(config: Config) -> MappoConfig:
    """An update as a configuration wants it."""
    rl = config.trainer.rl
    return MappoConfig(
        epochs=rl.epochs,
        minibatches=rl.minibatches,
        micro_tokens=rl.micro_tokens,
        clip=rl.clip,
        value_clip=VALUE_CLIP,
        gamma=rl.gamma,
        lam=rl.lam,
        credit=rl.credit,
        per_agent=rl.per_agent,
        kl=rl.kl,
        ratio=rl.ratio,
        critic_target=rl.critic_target,
        value_coef=rl.value_coef,
        entropy=rl.entropy,
        max_grad_norm=rl.max_grad_norm,
        importance_cap=config.engine.importance_cap,
        mismatch_limit=MISMATCH_LIMIT[config.model.dtype],
        aggregate=rl.aggregate,
        estimator=rl.estimator,
    )


@dataclass(frozen=True)
class Targets:
    """What one token's losses are computed from; float32 [N] over trainable tokens, rows in order.

    old: log-probs Eq. 16's ratio is taken against: the engine's, or (corrected for the difference by a weight within
    `advantages`) the trainer's own before the update. weights: what each token counts (`losses.token_weights`).
    """

    old: Tensor
    reference: Tensor | None
    values: Tensor
    advantages: Tensor
    returns: Tensor
    weights: Tensor
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
            self.spread,
        )


def update(
    actor: ActorCritic,
    optimizer: torch.optim.Optimizer,
    traj: Trajectories,
    cfg: MappoConfig,
    rng: np.random.Generator,
    advance: Callable[[int], Any] = lambda rows: None,
    version: int | None = None,
) -> dict[str, float]:
    """`improve` without DeepSpeed."""
    return improve(Plain(actor, optimizer, cfg.max_grad_norm), traj, cfg, rng, advance, version)


def improve(
    learner: Learner,
    traj: Trajectories,
    cfg: MappoConfig,
    rng: np.random.Generator,
    advance: Callable[[int], Any] = lambda rows: None,
    version: int | None = None,
) -> dict[str, float]:
    """Train on one batch; returns diagnostics. `advance` is told rows as they are done, epochs x rows in all.

    Every process calls it with its own episodes, in order of rank, and an `rng` in the same state; minibatches are
    drawn from the rows of all and losses normalised by the weights of all their tokens, so that the number of
    processes changes numbers by rounding at most. ValueError when nobody has a row; FloatingPointError when a gradient
    is not finite (weights are then as before the step); WrongWeights when the engine's log-probs of `version` (rows of
    older weights are left out; None: of all rows) are not those of this actor.
    """
    start = time.monotonic()
    rows = [row for row in traj.rows() if row.trainable]
    counts = gather(len(rows))
    first = sum(counts[: rank()])  # number of this process's first row among all
    if not any(counts):
        raise ValueError("a batch without trainable tokens: every episode failed or was played by fixed policies")
    if cfg.has_critic:
        _start_critic(learner, traj, cfg)
    with learner.whole():
        targets, report = prepare(learner.actor, rows, traj, cfg, version)
    sizes = np.array([len(row.tokens) - row.prompt for row in rows], np.int64)
    ends = np.cumsum(sizes)
    steps: list[dict[str, float]] = []
    for _ in range(cfg.epochs):
        for everyone in np.array_split(rng.permutation(sum(counts)), cfg.minibatches):
            part = everyone[(everyone >= first) & (everyone < first + len(rows))] - first
            micro = [part[group] for group in micro_batches([len(rows[i].tokens) for i in part], cfg.micro_tokens)]
            batches = [([rows[i] for i in m], targets.take(spans(ends[m] - sizes[m], ends[m]))) for m in micro]
            steps.append(_step(learner, batches, cfg))
            advance(len(part))
    report |= {name: float(np.mean([s[name] for s in steps])) for name in steps[0]}
    report["ratio/first"] = steps[0]["ratio/max"]
    report["ratio/max"] = max(s["ratio/max"] for s in steps)
    seconds = time.monotonic() - start
    report["tokens_per_second"] = cfg.epochs * sum(gather(sum(len(row.tokens) for row in rows))) / seconds
    return report


def _start_critic(learner: Learner, traj: Trajectories, cfg: MappoConfig) -> None:
    """A critic that was never trained starts at the mean return: rewards are worth about η per term, and from zero it
    would only chase that constant."""
    with learner.whole():
        untrained = learner.actor.critic_is_untrained
    if untrained and np.isfinite(start := _mean_return(traj, cfg)):
        learner.change(lambda: learner.actor.start_critic_at(start))


def prepare(
    actor: ActorCritic, rows: Sequence[Row], traj: Trajectories, cfg: MappoConfig, version: int | None = None
) -> tuple[Targets, dict[str, float]]:
    """Values, reference log-probs and advantages under the weights before the update, and what they tell.

    `rows` are the trainable rows of `traj`.
    """
    index = spans(
        np.array([row.start + row.prompt for row in rows], np.int64),
        np.array([row.start + len(row.tokens) for row in rows], np.int64),
    )
    old = actor.evaluate(rows, cfg.micro_tokens)
    reference = actor.reference_logp(rows, cfg.micro_tokens) if cfg.needs_reference else None
    values = np.zeros(len(traj.tokens), np.float32)
    values[index] = old.values.cpu().numpy()
    advantages, returns = _credited(actor, rows, traj, values, cfg)
    device = actor.device
    behaviour = torch.as_tensor(traj.logprobs[index], device=device)
    agree = _agreement(old.logp - behaviour, _sampled_by(version, rows, traj), cfg.mismatch_limit)
    weighed = torch.as_tensor(advantages[index], device=device)
    if cfg.importance_cap is not None:
        weighed = weighed * losses.truncated_importance(old.logp, behaviour, cfg.importance_cap)
    targets = Targets(
        old=behaviour if cfg.importance_cap is None else old.logp,
        reference=reference,
        values=old.values,
        advantages=weighed,
        returns=torch.as_tensor(returns[index], device=device),
        weights=_weights(rows, traj, cfg.aggregate).to(device),
        spread=max(1.0, float(_gather(returns[index][None].astype(np.float64)).var())),
    )
    agents = _per_token([row.agent for row in rows], rows)
    return targets, agree | _report(old, targets, agents, traj, cfg)


def _credited(
    actor: ActorCritic, rows: Sequence[Row], traj: Trajectories, values: Array, cfg: MappoConfig
) -> tuple[Array, Array]:
    """Advantages as the policy loss takes them, and returns, float32 [T]."""
    if cfg.estimator != "gae":
        return estimate(traj, cfg.estimator, gather_rows, _sum_array)
    after = _bootstrap(actor, rows, traj, cfg)
    advantages, returns = credit(
        traj, values, mode=cfg.credit, per_agent=cfg.per_agent, gamma=cfg.gamma, lam=cfg.lam, bootstrap=after
    )
    if cfg.critic_target == "reward":
        returns = episode_rewards(traj, per_agent=cfg.per_agent)
    return whiten(advantages, traj, reduce=_sum_array), returns


def _weights(rows: Sequence[Row], traj: Trajectories, aggregate: losses.Aggregate) -> Tensor:
    """float32 [N]: what each token counts; every episode lies in one process as a whole."""
    turn = _per_token([row.index for row in rows], rows)
    episode = _per_token([int(traj.segments.episode[2 * row.index]) for row in rows], rows)
    return losses.token_weights(torch.as_tensor(turn), torch.as_tensor(episode), aggregate)


def _sampled_by(version: int | None, rows: Sequence[Row], traj: Trajectories) -> Array:
    """int64 [N]: 1 for tokens that were sampled by weights `version`; all where it is None."""
    own = [version is None or traj.segments.version[2 * row.index] == version for row in rows]
    return _per_token(own, rows)


def _per_token(values: Sequence[int], rows: Sequence[Row]) -> Array:
    """int64 [N]: a value of each row, for each of its sampled tokens."""
    lengths = np.array([len(row.tokens) - row.prompt for row in rows], np.int64)
    return np.repeat(np.array(values, np.int64), lengths)


def _agreement(difference: Tensor, current: Array, limit: float | None) -> dict[str, float]:
    """How far trainer and engine are apart on the sampled tokens, over all processes; WrongWeights above `limit`.

    difference [N]: trainer's log-prob - behaviour log-prob, zero up to rounding while both hold the same weights.
    mismatch/mean, mismatch/max: of its absolute value; mismatch/kl: KL(engine || trainer) by the k3 estimator;
    ess: effective sample size of the importance weights as a share of the tokens. The guard looks at tokens of the
    `current` weights alone, since older ones differ by right.
    """
    every, current = _gather(np.stack([difference.cpu().double().numpy(), current.astype(np.float64)]))
    ratio, guarded = np.exp(every), np.abs(every[current > 0])
    if limit is not None and len(guarded) and not guarded.mean() <= limit:
        raise WrongWeights(
            f"the engine's log-probs differ from the trainer's by {guarded.mean():.2g} nats a token (largest "
            f"{guarded.max():.2g}, allowed {limit:g}): the engine sampled with other weights, so the run stops here."
        )
    return {
        "mismatch/mean": float(np.abs(every).mean()),
        "mismatch/max": float(np.abs(every).max()),
        "mismatch/kl": float((ratio - 1 - every).mean()),
        "ess": float(ratio.sum() ** 2 / (len(ratio) * (ratio**2).sum())),
    }


def _mean_return(traj: Trajectories, cfg: MappoConfig) -> float:
    """Mean return over trainable tokens of all processes when every value is zero."""
    nothing = np.zeros(len(traj.tokens), np.float32)
    _, returns = credit(traj, nothing, mode=cfg.credit, per_agent=cfg.per_agent, gamma=cfg.gamma, lam=1.0)
    return float(_gather(returns[traj.mask][None].astype(np.float64)).mean())


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


def _step(learner: Learner, batches: Sequence[tuple[Sequence[Row], Targets]], cfg: MappoConfig) -> dict[str, float]:
    """One optimiser step on micro-batches whose gradients add up; additive diagnostics are summed over processes."""
    device = learner.actor.device
    own = float(sum(targets.weights.double().sum() for _, targets in batches))
    weight = float(_sum(torch.tensor(own, device=device, dtype=torch.float64)))
    names = PARTS + (("loss/value",) if cfg.has_critic else ()) + (("kl_reference",) if cfg.needs_reference else ())
    sums = {name: torch.zeros((), device=device) for name in names}  # the same in a process without rows
    ratio_max = torch.zeros((), device=device)
    passes = max(gather(len(batches))) if learner.even else len(batches)
    for i, (rows, targets) in enumerate(batches):
        scores = learner.score(rows, entropy_gradient=cfg.entropy > 0)
        loss, parts = total_loss(scores, targets, weight, cfg)
        learner.backward(loss, last=i == passes - 1)
        for name in names:
            sums[name] += parts[name].detach()
        ratio_max = torch.maximum(ratio_max, (scores.logp.detach() - targets.old).exp().max())
    for i in range(len(batches), passes):
        learner.backward(_nothing(learner, cfg), last=i == passes - 1)
    norm = learner.step()
    if not np.isfinite(norm):
        raise FloatingPointError(f"gradient norm is {norm}: lower the learning rate or look at the rewards")
    report = {name: float(_sum(value)) for name, value in sums.items()}
    return {**report, "ratio/max": float(_sum(ratio_max, largest=True)), "grad_norm": norm}


def _nothing(learner: Learner, cfg: MappoConfig) -> Tensor:
    """The loss of a row that weighs nothing, for a process that has fewer passes to make than the others.

    Its graph has the outputs of theirs: under ZeRO-3 processes fetch weights in the order their graphs tell.
    """
    nobody = Row(0, 0, 1, np.zeros(2, np.int64), np.zeros(2, np.float32), (), agent=0, role=0, trainable=True)
    scores = learner.score([nobody], entropy_gradient=cfg.entropy > 0)
    return 0.0 * (scores.logp.sum() + scores.values.sum() + scores.entropy.sum())


def total_loss(scores: Scores, targets: Targets, weight: float, cfg: MappoConfig) -> tuple[Tensor, dict[str, Tensor]]:
    """Eq. 18 with its optional terms, for one micro-batch: L_actor + c_V L_critic + c_KL KL(π || π_ref) - c_H H.

    weight: of all tokens of the whole minibatch, over all micro-batches and processes.
    """
    weights = targets.weights
    base = targets.old if cfg.ratio == "behaviour" else targets.reference
    assert base is not None
    policy, parts = losses.policy_loss(scores.logp, base, targets.advantages, weights, weight, cfg.clip)
    entropy = losses.weighted(scores.entropy, weights, weight)
    parts |= {"loss/policy": policy, "entropy": entropy}
    if cfg.has_critic:
        clip = cfg.value_clip if cfg.critic_target == "returns" else None
        value = losses.value_loss(scores.values, targets.values, targets.returns, weights, weight, clip)
        parts["loss/value"] = value / targets.spread
        total = policy + cfg.value_coef * parts["loss/value"]
    else:
        total = policy + 0.0 * scores.values.sum()  # ZeRO wants every weight in the graph
    total = total - cfg.entropy * entropy
    if targets.reference is not None:
        kl = losses.reference_kl(scores.logp, targets.reference, weights, weight, cfg.kl_estimator)
        parts["kl_reference"] = kl
        total = total + cfg.kl * parts["kl_reference"]
    return total, parts | {"loss/total": total}


def _report(old: Scores, targets: Targets, agents: Array, traj: Trajectories, cfg: MappoConfig) -> dict[str, float]:
    """What else is known before the first step, over all processes.

    explained_variance is left out where all returns are equal, an agent's entropy where it did not act, and values
    where there is no critic.
    """
    table = (old.values, targets.returns, old.entropy)
    here = np.concatenate([np.stack([c.cpu().double().numpy() for c in table]), agents[None]])
    values, returns, entropy, agent = _gather(here)
    report = {"return/mean": float(returns.mean()), "tokens": float(len(values))}
    if cfg.has_critic:
        report["value/mean"] = float(values.mean())
        explained = losses.explained_variance(torch.as_tensor(values), torch.as_tensor(returns))
        if np.isfinite(explained):
            report["explained_variance"] = explained
    for i, name in enumerate(traj.agents):
        if (agent == i).any():
            report[f"entropy/{name}"] = float(entropy[agent == i].mean())
    return report


def _sum(value: Tensor, largest: bool = False) -> Tensor:
    """Sum (or maximum) over processes."""
    if world() > 1:
        dist.all_reduce(value, dist.ReduceOp.MAX if largest else dist.ReduceOp.SUM)
    return value


def _sum_array(value: Array) -> Array:
    return _sum(torch.as_tensor(value)).numpy()


def _gather(columns: Array) -> Array:
    """[C, N] of this process to [C, all N]."""
    return np.concatenate(gather(columns), axis=1)
