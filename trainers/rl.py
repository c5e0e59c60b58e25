"""The reinforcement-learning loop: play, reward, update, evaluate, keep the best (Algorithm 1, lines 15-18, GHAR).

A killed loop goes on from its newest checkpoint and ends with the numbers of one that was left alone.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from envs.case import Case
from envs.rollout import derive_seed
from ghar.episode import Episode
from ghar.llm.policy import EnginePolicy
from ghar.metrics.policy import eval_metrics
from ghar.metrics.runfolder import RunFolder
from ghar.progress import progress
from rewards.compose import EpisodeReward, Reference, observe, score_episode
from rewards.normalise import Running
from trainers import checkpoint
from trainers.actor_critic import ActorCritic
from trainers.checkpoint import Checkpoint
from trainers.engines import AnyEngine, make_engine, serving
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


@dataclass
class _Loop:
    """Where the loop stands: with the weights, all that the rest of it depends on.

    upcoming: indices of training cases already shuffled, next ones first; best: highest validation reward so far;
    waited: evaluations since.
    """

    actor: ActorCritic
    optimizer: torch.optim.Optimizer
    rng: np.random.Generator
    running: Running | None
    step: int = 0
    upcoming: list[int] = field(default_factory=list)
    best: float = -float("inf")
    waited: int = 0

    def checkpoint(self, score: float | None) -> Checkpoint:
        state = {
            "best": self.best if math.isfinite(self.best) else None,  # JSON knows no infinity
            "waited": self.waited,
            "upcoming": self.upcoming,
            "running": self.running.state_dict() if self.running else None,
        }
        weights, random = self.actor.trainable_state(), checkpoint.random_state(rl=self.rng)
        return Checkpoint(
            weights, self.optimizer.state_dict(), random, state, self.step, score, checkpoint.processes()
        )

    def go_on_from(self, found: Checkpoint) -> None:
        self.actor.load_trainable_state(found.weights)
        self.optimizer.load_state_dict(found.optimizer)
        checkpoint.restore_random(found.random, rl=self.rng)
        if self.running is not None:
            self.running.load_state_dict(found.state["running"])
        best = found.state["best"]
        self.best = -float("inf") if best is None else best
        self.waited, self.upcoming, self.step = found.state["waited"], found.state["upcoming"], found.step + 1


def reinforce(
    study: Study,
    actor: ActorCritic,
    tokenizer: Any,
    patients: Patients,
    log: Callable[[Mapping[str, Any]], None],
    folder: RunFolder,
) -> None:
    """Train `actor` for `trainer.rl.updates` updates, or until `patience` evaluations brought nothing better.

    Starts after the newest checkpoint of `folder` where there is one, and forgets the rows of metrics.jsonl after it.
    The best policy by validation reward is kept there too (pointer "best").
    """
    cfg, rl = study.config, study.config.trainer.rl
    torch.manual_seed(derive_seed(cfg.seed, "rl"))  # what earlier phases drew must not matter to a resumed one
    rng = np.random.default_rng(derive_seed(cfg.seed, "rl"))
    optimizer = torch.optim.AdamW(actor.parameter_groups(rl.lr, rl.value_lr), weight_decay=0.0)
    loop = _Loop(actor, optimizer, rng, Running() if cfg.reward.normalise == "running" else None)
    model, checkpoints = identity(cfg, actor, tokenizer), folder.path / "checkpoints"
    keep = checkpoint.Keep(cfg.keep_last, cfg.keep_best)
    found = checkpoint.newest(checkpoints, model, keep)
    if found is not None:
        print(f"Resuming reinforcement learning after update {found.step} of {rl.updates}.")
        loop.go_on_from(found)
    folder.rewind("rl", loop.step - 1)
    engine = make_engine(cfg, actor.model, tokenizer)
    while loop.step <= rl.updates and (rl.patience is None or loop.waited < rl.patience):
        row: dict[str, Any] = {"step": loop.step, "phase": "rl"}
        if loop.step > 0:
            row |= _update(study, loop, engine, patients)
        reward = None
        if loop.step % rl.eval_every == 0 or loop.step == rl.updates:
            numbers = _validate(study, loop, engine, patients.valid[: rl.eval_samples])
            row |= eval_metrics(numbers)
            reward = numbers["reward"][0]
            loop.best, loop.waited = (reward, 0) if reward > loop.best else (loop.best, loop.waited + 1)
        log(row)  # before the checkpoint: a resumed run cuts what is too much and cannot write what is missing
        if reward is not None or loop.step % rl.save_every == 0:
            checkpoint.save(checkpoints, loop.checkpoint(reward), model, keep)
        loop.step += 1
    engine.close()


def _update(study: Study, loop: _Loop, engine: AnyEngine, patients: Patients) -> dict[str, float]:
    """One batch: play, reward, train. Returns its part of the metrics."""
    rl, step = study.config.trainer.rl, loop.step
    cases = _next_batch(loop, patients.train, rl.episodes)
    start = time.monotonic()
    episodes = _collect(study, loop.actor, engine, cases, step)
    middle = time.monotonic()
    rewards = _reward(study, episodes, cases, patients.references, loop.running)
    traj = build(episodes, rewards)
    with progress(rl.epochs * sum(r.trainable for r in traj.rows()), f"Update {step}") as advance:
        report = update(loop.actor, loop.optimizer, traj, mappo_config(study.config), loop.rng, advance, step - 1)
    return {
        **{f"train/{name}": value for name, value in report.items()},
        **_batch_report(study, episodes, rewards, cases),
        "time/rollout": middle - start,
        "time/update": time.monotonic() - middle,
    }


def _next_batch(loop: _Loop, cases: Sequence[Case], size: int) -> list[Case]:
    """Distinct cases; over the batches, every case once per pass."""
    size = min(size, len(cases))
    if len(loop.upcoming) < size:
        waiting = set(loop.upcoming)
        loop.upcoming += [i for i in loop.rng.permutation(len(cases)).tolist() if i not in waiting]
    batch, loop.upcoming = loop.upcoming[:size], loop.upcoming[size:]
    return [cases[i] for i in batch]


def _collect(
    study: Study, actor: ActorCritic, engine: AnyEngine, cases: Sequence[Case], step: int
) -> list[Episode]:
    cfg = study.config
    with serving(engine, actor, step - 1):
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


def _validate(study: Study, loop: _Loop, engine: AnyEngine, cases: Sequence[Case]) -> dict[str, Any]:
    with serving(engine, loop.actor, loop.step):
        rows = score_policy(study, cases, EnginePolicy(engine, temperature=0), "ghar_rl", "valid", loop.running)
    return summarise(study, rows, CURVE_RESAMPLES)
