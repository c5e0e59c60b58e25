"""Rejection-sampling fine-tuning (trainer.method=rft): imitate a round's best episodes with the loss of SFT.

It is the control of RL. A round plays the episodes of an update of RL, keeps the best attempts at each patient, and
trains on them alone (Dong et al. 2023, "RAFT"; Gulcehre et al. 2023, "Reinforced self-training"). Rounds, validation,
checkpoints and processes are those of `ghar.trainers.rl.loop`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ghar.config import RlConfig
from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.fast.rows import packed
from ghar.trainers.rl.learner import Learner, score
from ghar.trainers.rl.mappo import empty_loss
from ghar.trainers.rl.targets import summed
from ghar.trainers.rl.trajectory import Row, Trajectories
from ghar.trainers.runs.distributed import gather, gather_rows, rank


def best_attempts(
    episodes: Sequence[Episode], rewards: Sequence[EpisodeReward], keep: int, min_reward: float | None
) -> list[int]:
    """Choose for each patient the `keep` attempts with the highest reward, as ascending indices.

    Ties go to the earlier attempt. Failed episodes and those below `min_reward` are never chosen. A process holds all
    attempts at its patients, so it chooses alone.
    """
    attempts: dict[str, list[int]] = {}
    for i, (episode, reward) in enumerate(zip(episodes, rewards, strict=True)):
        if episode.failure is None and (min_reward is None or reward.total >= min_reward):
            attempts.setdefault(episode.sample_id, []).append(i)
    ranked = (sorted(own, key=lambda i: -rewards[i].total)[:keep] for own in attempts.values())
    return sorted(i for best in ranked for i in best)


def imitate(
    learner: Learner,
    traj: Trajectories,
    cfg: RlConfig,
    rng: np.random.Generator,
    advance: Callable[[int], Any] = lambda rows: None,
) -> dict[str, float]:
    """Train on the replies of kept episodes for `cfg.epochs` passes of `cfg.minibatches` steps.

    Returns means over steps, and "tokens" of the kept replies of all processes.

    Every process calls it with its own episodes and an `rng` in the same state: steps are drawn from the rows of all.
    A round without a kept episode takes no step. `advance` is told rows as they are done, epochs x rows in all.
    """
    rows = [replace(row, choice_ids=()) for row in traj.rows() if row.trainable]  # SFT's loss: the whole vocabulary
    counts = gather(len(rows))
    first, total = sum(counts[: rank()]), sum(counts)
    tokens = float(sum(gather(sum(len(row.tokens) - row.prompt for row in rows))))
    steps: list[dict[str, float]] = []
    for _ in range(cfg.epochs if total else 0):
        for everyone in np.array_split(rng.permutation(total), min(cfg.minibatches, total)):
            own = everyone[(everyone >= first) & (everyone < first + len(rows))] - first
            steps.append(_step(learner, [rows[i] for i in own], cfg.micro_tokens))
            advance(len(own))
    means = {name: float(np.mean([step[name] for step in steps])) for name in steps[0]} if steps else {}
    return means | {"tokens": tokens}


def _step(learner: Learner, rows: Sequence[Row], micro_tokens: int) -> dict[str, float]:
    """Take one optimiser step on the mean loss over the reply tokens of all processes' rows."""
    device = learner.module.device
    own = sum(len(row.tokens) - row.prompt for row in rows)
    tokens = float(summed(torch.tensor(float(own), dtype=torch.float64, device=device)))
    micros = packed(rows, micro_tokens, learner.module.shares)
    loss, entropy = torch.zeros((), device=device), torch.zeros((), device=device)
    passes = max(gather(len(micros))) if learner.even else len(micros)
    for i, micro in enumerate(micros):
        scores = score(learner, [rows[k] for k in micro.rows], False, micro.trees)
        part = -scores.logp.sum() / tokens
        learner.backward(part + 0.0 * scores.values.sum(), last=i == passes - 1)  # ZeRO wants every weight in the graph
        loss += part.detach()
        entropy += scores.entropy.detach().sum() / tokens
    for i in range(len(micros), passes):
        learner.backward(empty_loss(learner, entropy_gradient=False), last=i == passes - 1)
    norm = learner.step()
    if not np.isfinite(norm):
        raise FloatingPointError(f"gradient norm is {norm}: lower trainer.rft.lr")
    return {"loss": float(summed(loss)), "entropy": float(summed(entropy)), "grad_norm": norm}


def kept_report(totals: Sequence[float], kept: Sequence[int]) -> dict[str, float]:
    """Report how many episodes all processes kept, of how many, and the mean reward of kept and rejected ones."""
    chosen = set(kept)
    rows = gather_rows([(total, i in chosen) for i, total in enumerate(totals)])
    best, rest = ([total for total, is_kept in rows if is_kept is wanted] for wanted in (True, False))
    report = {"kept": float(len(best)), "episodes": float(len(rows))}
    means = {"reward/kept": best, "reward/rejected": rest}
    return report | {name: float(np.mean(some)) for name, some in means.items() if some}
