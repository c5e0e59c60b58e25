"""The reinforcement-learning loop: play, reward, update, evaluate, keep the best (Algorithm 1, lines 15-18, GHAR)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs.case import Case
from envs.rollout import derive_seed
from ghar.episode import Episode
from ghar.llm.hf import HFEngine
from ghar.llm.policy import EnginePolicy
from ghar.metrics.policy import eval_metrics
from ghar.progress import progress
from rewards.compose import EpisodeReward, Reference, observe, score_episode
from rewards.normalise import Running
from trainers import checkpoint
from trainers.actor_critic import ActorCritic
from trainers.evaluate import CURVE_RESAMPLES, score_policy, summarise
from trainers.mappo import update
from trainers.models import identity, mappo_config
from trainers.play import needs_retrieval, play
from trainers.study import Study
from trainers.trajectory import build


@dataclass(frozen=True)
class Patients:
    """Training cases with their references (Eq. 15), and the validation cases every evaluation uses."""

    train: Sequence[Case]
    valid: Sequence[Case]
    references: Mapping[str, Reference]


def reinforce(
    study: Study,
    actor: ActorCritic,
    tokenizer: Any,
    patients: Patients,
    log: Callable[[Mapping[str, Any]], None],
    checkpoints: Path,
) -> None:
    """Train `actor` for `trainer.rl.updates` updates, or until `patience` evaluations brought nothing better.

    The best policy by validation reward is kept under `checkpoints` (pointer "best").
    """
    cfg, rl = study.config, study.config.trainer.rl
    rng = np.random.default_rng(derive_seed(cfg.seed, "rl"))
    optimizer = torch.optim.AdamW(actor.parameter_groups(rl.lr, rl.value_lr), weight_decay=0.0)
    running = Running() if cfg.reward.normalise == "running" else None
    mappo, model = mappo_config(cfg), identity(cfg, actor, tokenizer)
    engine = HFEngine(actor.model, tokenizer, cfg.engine.max_batch)
    batches = _batches(patients.train, rl.episodes, rng)
    best, waited = -float("inf"), 0
    for step in range(rl.updates + 1):
        row: dict[str, Any] = {"step": step, "phase": "rl"}
        if step > 0:
            cases = next(batches)
            start = time.monotonic()
            episodes = _collect(study, actor, engine, cases, step)
            middle = time.monotonic()
            rewards = _reward(study, episodes, cases, patients.references, running)
            traj = build(episodes, rewards)
            with progress(rl.epochs * sum(r.trainable for r in traj.rows()), f"Update {step}") as advance:
                report = update(actor, optimizer, traj, mappo, rng, advance)
            engine.version = step
            row |= {f"train/{name}": value for name, value in report.items()}
            row |= _batch_report(study, episodes, rewards, cases)
            row |= {"time/rollout": middle - start, "time/update": time.monotonic() - middle}
        last = step == rl.updates
        if step % rl.eval_every == 0 or last:
            numbers = _validate(study, actor, engine, patients.valid[: rl.eval_samples], running)
            row |= eval_metrics(numbers)
            improved = numbers["reward"][0] > best
            best, waited = (numbers["reward"][0], 0) if improved else (best, waited + 1)
            state = {"best": best, "waited": waited, "running": running.state_dict() if running else None}
            found = checkpoint.Checkpoint(
                actor.trainable_state(), optimizer.state_dict(), checkpoint.random_state(rl=rng), state, step
            )
            checkpoint.save(checkpoints, found, model, best=improved)
        log(row)
        if rl.patience is not None and waited >= rl.patience:
            return


def _batches(cases: Sequence[Case], size: int, rng: np.random.Generator) -> Iterator[list[Case]]:
    """Endless batches of distinct cases, every case once per pass."""
    size = min(size, len(cases))
    order: list[int] = []
    while True:
        if len(order) < size:
            order += [i for i in rng.permutation(len(cases)).tolist() if i not in set(order)]
        yield [cases[i] for i in order[:size]]
        order = order[size:]


def _collect(
    study: Study, actor: ActorCritic, engine: HFEngine, cases: Sequence[Case], step: int
) -> list[Episode]:
    cfg = study.config
    with actor.merged() as merged:
        engine.model = merged
        policy = EnginePolicy(engine, cfg.engine.temperature)
        return play(study, cases, policy, seed=derive_seed(cfg.seed, "rollout", step), title=f"Rollout {step}")


def _reward(
    study: Study,
    episodes: Sequence[Episode],
    cases: Sequence[Case],
    references: Mapping[str, Reference],
    running: Running | None,
) -> list[EpisodeReward]:
    if running is not None:
        observe(running, episodes, study.rewards)
    return [
        score_episode(episode, case.label, study.rewards, references.get(case.sample_id), running)
        for episode, case in zip(episodes, cases, strict=True)
    ]


def _batch_report(
    study: Study, episodes: Sequence[Episode], rewards: Sequence[EpisodeReward], cases: Sequence[Case]
) -> dict[str, float]:
    """What the batch itself tells: rewards per term, accuracy, retrieval, format errors."""
    turns = [turn for episode in episodes for turn in episode.turns]
    needs = needs_retrieval(study, cases)
    retrieved = [any(step.retrieved for step in e.prediction.history) for e in episodes]
    report = {
        "train/reward/total": float(np.mean([r.total for r in rewards])),
        "train/accuracy": float(np.mean([e.prediction.label == c.label for e, c in zip(episodes, cases, strict=True)])),
        "train/retrieval_rate": float(np.mean(retrieved)),
        "train/iterations": float(np.mean([len(e.prediction.history) for e in episodes])),
        "train/format_errors": float(np.mean([not turn.format_ok for turn in turns])),
        "train/failures": float(sum(e.failure is not None for e in episodes)),
    }
    for term in rewards[0].terms:
        report[f"train/reward/{term}"] = float(np.mean([r.terms[term] for r in rewards]))
    known = [(needs[c.sample_id], r) for c, r in zip(cases, retrieved, strict=True) if needs[c.sample_id] is not None]
    if known:
        report["train/when_correct"] = float(np.mean([n == r for n, r in known]))
    return report


def _validate(
    study: Study, actor: ActorCritic, engine: HFEngine, cases: Sequence[Case], running: Running | None
) -> dict[str, Any]:
    with actor.merged() as merged:
        engine.model = merged
        rows = score_policy(study, cases, EnginePolicy(engine, temperature=0), "ghar_rl", "valid", running)
    return summarise(study, rows, CURVE_RESAMPLES)
