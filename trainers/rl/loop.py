"""The reinforcement-learning loop: play, reward, update, evaluate, keep the best (Algorithm 1, lines 15-18, GHAR).

A killed loop goes on from its newest checkpoint and ends with the numbers of one that was left alone. Several
processes walk through it in step, each with its share of the patients; process 0 writes what is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from envs.case import Case
from envs.rollout import derive_seed
from ghar.episode import Episode
from ghar.metrics.policy import eval_metrics
from ghar.metrics.runfolder import RunFolder
from ghar.progress import progress
from rewards.compose import EpisodeReward, Reference, observe, score_episode
from rewards.normalise import Running
from trainers.evaluate import CURVE_RESAMPLES, rows_of, summarise
from trainers.play import needs_retrieval
from trainers.players import Hire, Order, Players, here
from trainers.rl.actor_critic import ActorCritic
from trainers.rl.learner import Learner, Plain, Sharded, sharing
from trainers.rl.mappo import improve
from trainers.rl.trajectory import build
from trainers.runs import checkpoint
from trainers.runs.checkpoint import Checkpoint, Keep
from trainers.runs.distributed import gather, gather_rows, on_main, rank, share, to_main
from trainers.runs.models import identity, mappo_config
from trainers.study import Study


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
    waited: evaluations since; under_way: batches being played, with this process's share of their cases. A resumed run
    orders those again, so their cases stay in `upcoming` until they have been trained on.
    """

    learner: Learner
    rng: np.random.Generator
    running: Running | None
    step: int = 0
    upcoming: list[int] = field(default_factory=list)
    best: float = -float("inf")
    waited: int = 0
    under_way: list[tuple[Sequence[Case], Callable[[], list[Episode]]]] = field(default_factory=list)

    @property
    def actor(self) -> ActorCritic:
        return self.learner.actor

    def checkpoint(self, score: float | None) -> Checkpoint:
        state = {
            "best": self.best if math.isfinite(self.best) else None,  # JSON knows no infinity
            "waited": self.waited,
            "upcoming": self.upcoming,
            "running": self.running.state_dict() if self.running else None,
        }
        with self.learner.whole():
            weights = {name: w.cpu().clone() for name, w in self.actor.trainable_state().items()} if rank() == 0 else {}
        optimizer = to_main(self.learner.state())
        random = checkpoint.random_state(rl=self.rng)
        return Checkpoint(weights, {"ranks": optimizer}, random, state, self.step, score, checkpoint.processes())

    def go_on_from(self, found: Checkpoint) -> None:
        self.learner.change(lambda: self.actor.load_trainable_state(found.weights))
        self.learner.load_state(found.optimizer["ranks"][rank()])
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
    hire: Hire = here,
) -> None:
    """Train `actor` for `trainer.rl.updates` updates, or until `patience` evaluations brought nothing better.

    Starts after the newest checkpoint of `folder` where there is one, and forgets the rows of metrics.jsonl after it.
    The best policy by validation reward is kept there too (pointer "best"). hire: gives it who plays the episodes.
    """
    cfg, rl = study.config, study.config.trainer.rl
    torch.manual_seed(derive_seed(cfg.seed, "rl"))  # what earlier phases drew must not matter to a resumed one
    rng = np.random.default_rng(derive_seed(cfg.seed, "rl"))
    loop = _Loop(_learner(study, actor), rng, Running() if cfg.reward.normalise == "running" else None)
    model, checkpoints = identity(cfg, actor, tokenizer), folder.path / "checkpoints"
    keep = checkpoint.Keep(cfg.keep_last, cfg.keep_best)
    found = _newest(checkpoints, model, keep)
    if found is not None:
        on_main(lambda: print(f"Resuming reinforcement learning after update {found.step} of {rl.updates}."))
        loop.go_on_from(found)
    on_main(lambda: folder.rewind("rl", loop.step - 1))
    with closing(hire(study, actor, tokenizer)) as players:
        while loop.step <= rl.updates and (rl.patience is None or loop.waited < rl.patience):
            row: dict[str, Any] = {"step": loop.step, "phase": "rl"}
            if loop.step > 0:
                row |= _update(study, loop, players, patients)
            reward = None
            if loop.step % rl.eval_every == 0 or loop.step == rl.updates:
                numbers = _validate(study, loop, players, patients.valid[: rl.eval_samples])
                row |= eval_metrics(numbers)
                reward = numbers["reward"][0]
                loop.best, loop.waited = (reward, 0) if reward > loop.best else (loop.best, loop.waited + 1)
            log(row)  # before the checkpoint: a resumed run cuts what is too much and cannot write what is missing
            if reward is not None or loop.step % rl.save_every == 0:
                state = loop.checkpoint(reward)
                if rank() == 0:
                    checkpoint.save(checkpoints, state, model, keep)
            loop.step += 1


def _learner(study: Study, actor: ActorCritic) -> Learner:
    config, rl = study.config, study.config.trainer.rl
    optimizer = torch.optim.AdamW(actor.parameter_groups(rl.lr, rl.value_lr), weight_decay=0.0)
    if sharing(config).stage is None:
        return Plain(actor, optimizer, rl.max_grad_norm)
    return Sharded(actor, optimizer, sharing(config), config.model.dtype, rl.max_grad_norm)


def _newest(folder: Path, model: Mapping[str, str], keep: Keep) -> Checkpoint | None:
    """The checkpoint to go on from, in every process; process 0 tidies the folder first."""
    mine: list[Checkpoint | None] = []

    def choose() -> int | None:
        mine.append(checkpoint.newest(folder, model, keep))
        return None if mine[0] is None else mine[0].step

    step = on_main(choose)
    if mine or step is None:
        return mine[0] if mine else None
    return checkpoint.load(folder / f"step-{step}", model)


def _update(study: Study, loop: _Loop, players: Players, patients: Patients) -> dict[str, float]:
    """One batch: play, reward, train. Returns its part of the metrics."""
    rl, step = study.config.trainer.rl, loop.step
    start = time.monotonic()
    _order(study, loop, players, patients.train)
    cases, wait = loop.under_way.pop(0)
    episodes = wait()
    middle = time.monotonic()
    rewards = _reward(study, episodes, cases, patients.references, loop.running)
    traj = build(episodes, rewards)
    with progress(rl.epochs * sum(r.trainable for r in traj.rows()), f"Update {step}") as advance:
        report = improve(loop.learner, traj, mappo_config(study.config), loop.rng, advance, step - 1)
    del loop.upcoming[: min(rl.episodes, len(patients.train))]
    if players.ahead:
        report["staleness"] = _staleness(episodes, step - 1)
    return {
        **{f"train/{name}": value for name, value in report.items()},
        **_batch_report(study, episodes, rewards, cases),
        "time/rollout": middle - start,
        "time/update": time.monotonic() - middle,
    }


def _order(study: Study, loop: _Loop, players: Players, cases: Sequence[Case]) -> None:
    """Have the batch of this step played, unless it is under way, and those that may be played ahead of their step.

    A batch is ordered with the newest weights at most `players.ahead` steps before its own, so that is the most updates
    its weights can lack when it is trained on.
    """
    cfg = study.config
    for ahead in range(len(loop.under_way), players.ahead + 1):
        step = loop.step + ahead
        if step > cfg.trainer.rl.updates:
            return
        batch = share(_batch(loop, cases, cfg.trainer.rl.episodes, ahead))
        order = Order(batch, derive_seed(cfg.seed, "rollout", step), cfg.engine.temperature, f"Rollout {step}")
        loop.under_way.append((batch, players.begin(order, loop.learner, loop.step - 1)))


def _batch(loop: _Loop, cases: Sequence[Case], size: int, ahead: int) -> list[Case]:
    """The batch after `ahead` others: distinct cases; over the batches, every case once per pass."""
    size = min(size, len(cases))
    first = ahead * size
    if len(loop.upcoming) < first + size:
        waiting = set(loop.upcoming[first:])
        loop.upcoming += [i for i in loop.rng.permutation(len(cases)).tolist() if i not in waiting]
    return [cases[i] for i in loop.upcoming[first : first + size]]


def _staleness(episodes: Sequence[Episode], version: int) -> int:
    """By how many updates the oldest weights that played lack behind `version`, over all processes."""
    played = [turn.completion.version for episode in episodes for turn in episode.turns if turn.trainable]
    return version - min(gather(min(played, default=version)))


def _reward(
    study: Study,
    episodes: Sequence[Episode],
    cases: Sequence[Case],
    references: Mapping[str, Reference],
    running: Running | None,
) -> list[EpisodeReward]:
    if running is not None:
        seen = _Seen()
        observe(seen, episodes, study.rewards)
        running.observe(gather_rows(seen.values))
    return [
        score_episode(episode, case.label, study.rewards, references.get(case.sample_id), running)
        for episode, case in zip(episodes, cases, strict=True)
    ]


class _Seen(Running):
    """Keeps what it is shown, for the normaliser of all processes."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[str, float]] = []

    def observe(self, values: Iterable[tuple[str, float]]) -> None:
        self.values += values


@dataclass(frozen=True)
class _Outcome:
    """What the report of a batch says of an episode. needs: whether a look-up was needed, None where nobody knows."""

    reward: EpisodeReward
    right: bool
    retrieved: bool
    needs: bool | None
    iterations: int
    malformed: tuple[bool, ...]
    failed: bool


def _batch_report(
    study: Study, episodes: Sequence[Episode], rewards: Sequence[EpisodeReward], cases: Sequence[Case]
) -> dict[str, float]:
    """What the batch of all processes itself tells: rewards per term, accuracy, retrieval, format errors."""
    needs = needs_retrieval(study, cases)
    outcomes = gather_rows(
        [
            _Outcome(
                reward=reward,
                right=episode.prediction.label == case.label,
                retrieved=any(step.retrieved for step in episode.prediction.history),
                needs=needs[case.sample_id],
                iterations=len(episode.prediction.history),
                malformed=tuple(not turn.format_ok for turn in episode.turns),
                failed=episode.failure is not None,
            )
            for episode, reward, case in zip(episodes, rewards, cases, strict=True)
        ]
    )
    report = {
        "train/reward/total": float(np.mean([o.reward.total for o in outcomes])),
        "train/accuracy": float(np.mean([o.right for o in outcomes])),
        "train/retrieval_rate": float(np.mean([o.retrieved for o in outcomes])),
        "train/iterations": float(np.mean([o.iterations for o in outcomes])),
        "train/format_errors": float(np.mean([wrong for o in outcomes for wrong in o.malformed])),
        "train/failures": float(sum(o.failed for o in outcomes)),
    }
    for term in outcomes[0].reward.terms:
        report[f"train/reward/{term}"] = float(np.mean([o.reward.terms[term] for o in outcomes]))
    known = [o.needs == o.retrieved for o in outcomes if o.needs is not None]
    if known:
        report["train/when_correct"] = float(np.mean(known))
    return report


def _validate(study: Study, loop: _Loop, players: Players, cases: Sequence[Case]) -> dict[str, Any]:
    own = share(cases)
    order = Order(own, study.config.seed, temperature=0.0, title="Evaluating ghar_rl")
    episodes = players.begin(order, loop.learner, loop.step)()
    rows = rows_of(study, own, episodes, "ghar_rl", "valid", loop.running)
    return summarise(study, gather_rows(rows), CURVE_RESAMPLES)
