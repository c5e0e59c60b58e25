"""One update of multi-agent PPO (Eqs. 16-18, GHAR): from a batch of episodes to new weights and diagnostics.

The paper's text leaves two things unsound, which both exist here: Eq. 16 takes the ratio against the reference policy
(default: against the behaviour policy, with a KL term to the reference), and Eq. 17 regresses V on the shared reward
(default: on returns).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from ghar.trainers.rl import losses
from ghar.trainers.rl.actor_critic import ActorCritic, Scores
from ghar.trainers.rl.critic import Critic
from ghar.trainers.rl.critic_baseline import CriticBaseline
from ghar.trainers.rl.fast.rows import packed
from ghar.trainers.rl.learner import Learner, PlainLearner, score
from ghar.trainers.rl.settings import MappoConfig
from ghar.trainers.rl.state import states
from ghar.trainers.rl.targets import NONE, Earlier, Targets, earned, gathered, prepare, sampled, summed
from ghar.trainers.rl.trajectory import Row, Trajectories, spans
from ghar.trainers.runs.distributed import gather, rank

_Part: TypeAlias = tuple[Sequence[Row], Sequence[int], Targets]  # of a minibatch: rows, sizes of trees, targets
PARTS = ("loss/total", "loss/policy", "entropy", "old_approx_kl", "approx_kl", "clipfrac")


def update(
    actor: ActorCritic,
    optimizer: torch.optim.Optimizer,
    traj: Trajectories,
    cfg: MappoConfig,
    rng: np.random.Generator,
    advance: Callable[[int], Any] = lambda rows: None,
    version: int | None = None,
    critic: Critic | None = None,
) -> dict[str, float]:
    """`improve` without DeepSpeed."""
    return improve(PlainLearner(actor, optimizer, cfg.max_grad_norm), traj, cfg, rng, advance, version, critic)


def improve(
    learner: Learner,
    traj: Trajectories,
    cfg: MappoConfig,
    rng: np.random.Generator,
    advance: Callable[[int], Any] = lambda rows: None,
    version: int | None = None,
    critic: Critic | None = None,
    yardstick: CriticBaseline | None = None,
    moves: bool = True,
    earlier: Earlier = NONE,
) -> dict[str, float]:
    """Train on one batch; returns diagnostics. `advance` is told rows as they are done, epochs x rows in all.

    Every process calls it with its own episodes, in order of rank, and an `rng` in the same state; minibatches are
    drawn from the rows of all and losses normalised by the weights of all their tokens, so that the number of
    processes changes numbers by rounding at most. ValueError when no one has a row; FloatingPointError when a gradient
    is not finite (weights are then as before the step); WrongWeights when the engine's log-probs of `version` (None: of
    all rows) are not those of this actor, or those of a version in `earlier` not those of its weights.
    critic: where cfg.critic is "own"; it learns after the policy. yardstick: what it is measured against, over updates.
    moves: whether the policy takes its steps, or waits for the critic to know something.
    """
    start = time.monotonic()
    rows = [row for row in traj.rows() if row.trainable]
    counts = gather(len(rows))
    if not any(counts):
        raise ValueError("a batch without trainable tokens: every episode failed or was played by fixed policies")
    if cfg.trains_heads:
        _start_heads(learner, traj, cfg)
    with learner.whole():
        targets, report = prepare(learner.module, rows, traj, cfg, version, critic, yardstick, earlier)
    if moves:
        report |= _policy_steps(learner, rows, targets, counts, cfg, rng, advance)
    if critic is not None:
        returns = np.zeros(len(traj.tokens), np.float32)
        returns[sampled(rows)] = targets.returns.cpu().numpy()
        read = states(traj, cfg.credit != "turn")
        report |= critic.fit(read, [returns[state.where] for state in read], rng)
    tokens, seconds = sum(gather(sum(len(row.tokens) for row in rows))), time.monotonic() - start
    return report | ({"tokens_per_second": cfg.epochs * tokens / seconds} if moves else {})


def _policy_steps(
    learner: Learner,
    rows: Sequence[Row],
    targets: Targets,
    counts: Sequence[int],
    cfg: MappoConfig,
    rng: np.random.Generator,
    advance: Callable[[int], Any],
) -> dict[str, float]:
    """All epochs; `counts`: rows of each process. Means over steps, and the extremes of the ratio."""
    first = sum(counts[: rank()])  # number of this process's first row among all
    sizes = np.array([len(row.tokens) - row.prompt for row in rows], np.int64)
    ends = np.cumsum(sizes)
    steps: list[dict[str, float]] = []
    for _ in range(cfg.epochs):
        # a step without rows would move several processes by momentum, and none alone
        for everyone in np.array_split(rng.permutation(sum(counts)), min(cfg.minibatches, sum(counts))):
            part = everyone[(everyone >= first) & (everyone < first + len(rows))] - first
            batches: list[_Part] = []
            for micro in packed([rows[i] for i in part], cfg.micro_tokens, learner.module.shares):
                own = part[micro.rows]
                batches.append(
                    ([rows[i] for i in own], micro.trees, targets.take(spans(ends[own] - sizes[own], ends[own])))
                )
            steps.append(_step(learner, batches, cfg))
            advance(len(part))
    report = {name: float(np.mean([s[name] for s in steps])) for name in steps[0]}
    ratio = {"ratio/first": steps[0]["ratio/max"], "ratio/max": max(s["ratio/max"] for s in steps)}
    return report | ratio


def _start_heads(learner: Learner, traj: Trajectories, cfg: MappoConfig) -> None:
    """A critic that was never trained starts at the mean return: rewards are worth about η per term, and from zero it
    would only chase that constant."""
    with learner.whole():
        untrained = learner.module.critic_is_untrained
    mean = gathered(earned(traj, np.zeros(len(traj.tokens)), cfg)[traj.mask][None].astype(np.float64)).mean()
    if untrained and np.isfinite(start := float(mean)):
        learner.change(lambda: learner.module.start_critic_at(start))


def _step(learner: Learner, batches: Sequence[_Part], cfg: MappoConfig) -> dict[str, float]:
    """One optimiser step on micro-batches whose gradients add up; additive diagnostics are summed over processes."""
    device = learner.module.device
    sizes = [torch.stack([t.weights.double().sum(), t.value_weights.double().sum()]) for *_, t in batches]
    both = summed(sum(sizes, torch.zeros(2, device=device, dtype=torch.float64)))
    weight, value_weight = (float(size) or 1.0 for size in both)  # 0: no token was chosen among several
    names = PARTS + (("loss/value",) if cfg.trains_heads else ()) + (("loss/kl",) if cfg.has_kl_loss else ())
    sums = {name: torch.zeros((), device=device) for name in names}  # the same in a process without rows
    ratio_max = torch.zeros((), device=device)
    passes = max(gather(len(batches))) if learner.even else len(batches)
    for i, (rows, trees, targets) in enumerate(batches):
        scores = score(learner, rows, cfg.entropy > 0, trees)
        loss, parts = total_loss(scores, targets, weight, value_weight, cfg)
        learner.backward(loss, last=i == passes - 1)
        for name in names:
            sums[name] += parts[name].detach()
        ratio_max = torch.maximum(ratio_max, (scores.logp.detach() - targets.old).exp().max())
    for i in range(len(batches), passes):
        learner.backward(empty_loss(learner, cfg.entropy > 0), last=i == passes - 1)
    norm = learner.step()
    if not np.isfinite(norm):
        raise FloatingPointError(f"gradient norm is {norm}: lower the learning rate or look at the rewards")
    report = {name: float(summed(value)) for name, value in sums.items()}
    return {**report, "ratio/max": float(summed(ratio_max, largest=True)), "grad_norm": norm}


def empty_loss(learner: Learner, entropy_gradient: bool) -> Tensor:
    """Compute the loss of a row of weight zero, for a process that has fewer passes to make than the others.

    Its graph has the outputs of theirs: under ZeRO-3 processes fetch weights in the order their graphs tell.
    """
    blank = Row(0, 0, 1, np.zeros(2, np.int64), np.zeros(2, np.float32), (), agent=0, role=0, trainable=True)
    scores = score(learner, [blank], entropy_gradient)
    return 0.0 * (scores.logp.sum() + scores.values.sum() + scores.entropy.sum())


def total_loss(
    scores: Scores, targets: Targets, weight: float, value_weight: float, cfg: MappoConfig
) -> tuple[Tensor, dict[str, Tensor]]:
    """Eq. 18 with its optional terms, for one micro-batch: L_actor + c_V L_critic + c_KL KL(π || π_ref) - c_H H.

    weight, value_weight: of all tokens of the whole minibatch, over all micro-batches and processes.
    """
    weights = targets.weights
    base = targets.old if cfg.ratio == "behaviour" else targets.reference
    assert base is not None
    policy, parts = losses.policy_loss(scores.logp, base, targets.advantages, weights, weight, cfg.clip)
    entropy = losses.weighted(scores.entropy, weights, weight)
    parts |= {"loss/policy": policy, "entropy": entropy}
    if cfg.trains_heads:
        clip = cfg.value_clip if cfg.critic_target == "returns" else None
        own = targets.value_weights, value_weight
        value = losses.value_loss(scores.values, targets.values, targets.returns, *own, clip)
        parts["loss/value"] = value / targets.spread
        total = policy + cfg.value_coef * parts["loss/value"]
    else:
        total = policy + 0.0 * scores.values.sum()  # ZeRO wants every weight in the graph
    total = total - cfg.entropy * entropy
    if targets.reference is not None and cfg.kl_estimator != "reward":  # else the reward has it (targets.kl_in_reward)
        kl = losses.reference_kl(scores.logp, targets.reference, weights, weight, cfg.kl_estimator)
        parts["loss/kl"] = kl
        total = total + cfg.kl * parts["loss/kl"]
    return total, parts | {"loss/total": total}
