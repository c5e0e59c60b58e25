"""The reinforcement-learning loop of any system: play, reward, update, evaluate, keep the best (Algorithm 1, lines
15-18, GHAR).

A killed loop goes on from its newest checkpoint and ends with the numbers of one that was left alone. Several
processes walk through it in step, each with its share of the patients; process 0 writes what is written.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ghar.config import Config, RlConfig
from ghar.envs.play import validation_cases
from ghar.envs.rollout import derive_seed
from ghar.envs.system import RewardShaping, System
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.interrupt import finishing
from ghar.metrics.policy import eval_metrics
from ghar.metrics.runfolder import RunFolder
from ghar.progress import progress
from ghar.rewards.compose import EpisodeReward, Reference
from ghar.rewards.normalise import RunningNormaliser
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.batch_report import batch_report, sampled_rows
from ghar.trainers.rl.critic import Critic, CriticConfig
from ghar.trainers.rl.critic_baseline import CriticBaseline
from ghar.trainers.rl.estimators import telling
from ghar.trainers.rl.learner import Learner, learner_of
from ghar.trainers.rl.mappo import improve
from ghar.trainers.rl.rft import best_attempts, imitate, kept_report
from ghar.trainers.rl.schedule import adapted, scaled, shares
from ghar.trainers.rl.settings import has_critic, learning_rate, settings_of
from ghar.trainers.rl.state import width
from ghar.trainers.rl.trajectory import Trajectories, build
from ghar.trainers.rl.workers import RolloutRequest, Workers
from ghar.trainers.rows import reward_of, rows_of, running_of, summarise
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.checkpoint import Checkpoint, KeepPolicy
from ghar.trainers.runs.checkpoint_writer import CheckpointWriter
from ghar.trainers.runs.distributed import gather, gather_rows, on_main, rank, share

CURVE_RESAMPLES = 200  # intervals of a learning curve; final numbers use eval.bootstrap


@dataclass(frozen=True)
class TrainingInputs:
    """What is trained on: a system, its configuration, and references of training cases (Eq. 15); the run's
    folder."""

    system: System[Any]
    config: Config
    references: Mapping[str, Reference]
    folder: RunFolder


@dataclass
class _Loop:
    """Where the loop stands: with the weights, all that the rest of it depends on.

    upcoming: indices of training cases already shuffled, next ones first; best: highest score on validation so far;
    waited: evaluations since; saving: writes checkpoints; critic: where it is one of its own; yardstick: what the
    critic is measured against; kl: weight of the term to the reference; earlier: what the batches under way are played
    with, by version, where some are played ahead, in CPU memory; under_way: batches being played, with this process's
    share of their cases; validation_scale: costs of the first validation, in whose units those of all are counted,
    None before it and where `running` is None.
    A resumed run orders those again, so their cases stay in `upcoming` until they have been trained on.
    """

    learner: Learner
    rng: np.random.Generator
    running: RunningNormaliser | None
    saving: CheckpointWriter | None = None
    critic: Critic | None = None
    kl: float = 0.0
    yardstick: CriticBaseline = field(default_factory=CriticBaseline)
    step: int = 0
    upcoming: list[int] = field(default_factory=list)
    best: float = -float("inf")
    waited: int = 0
    earlier: dict[int, dict[str, torch.Tensor]] = field(default_factory=dict)
    under_way: list[tuple[Sequence[Any], Callable[[], list[Episode]]]] = field(default_factory=list)
    validation_scale: RunningNormaliser | None = None

    @property
    def actor(self) -> ActorCritic:
        return self.learner.module

    def weights(self, wanted: bool = True) -> dict[str, torch.Tensor]:
        """A copy of the trainable weights in CPU memory, where they are `wanted`; every process must ask."""
        with self.learner.whole():
            state = self.actor.trainable_state() if wanted else {}
            return {name: w.to("cpu", copy=True) for name, w in state.items()}

    def checkpoint(self, score: float | None, credentialed: bool, copied: bool = True) -> Checkpoint:
        """All that a resumed loop needs; every process must ask. copied: it shares no memory with the training."""
        state = {
            "best": self.best if math.isfinite(self.best) else None,  # JSON knows no infinity
            "waited": self.waited,
            "upcoming": list(self.upcoming),
            "kl": self.kl,
            "running": self.running.state_dict() if self.running else None,
        }
        if self.validation_scale is not None:
            state["validation_scale"] = self.validation_scale.state_dict()
        main = rank() == 0
        weights = self.weights(main)
        optimizer: dict[str, Any] = {"own": self.learner.state(copied)} if main or self.learner.parted else {}
        if main:
            optimizer["yardstick"] = self.yardstick.state()
        if self.critic is not None:
            critic_state = self.critic.state(main)
            optimizer |= {"critic": critic_state} if main else {}
            optimizer |= {"critic_own": self.critic.own_state()} if main or self.learner.parted else {}
        random = checkpoint.random_state(rl=self.rng)
        return Checkpoint(weights, optimizer, random, state, self.step, score, checkpoint.processes(), credentialed)

    def go_on_from(self, last: Checkpoint, parts: Sequence[Mapping[str, Any]]) -> None:
        """parts: the optimiser states of all processes that saved, where they were another number; else ()."""
        self.learner.change(lambda: self.actor.load_trainable_state(last.weights))
        self.learner.load_state(last.optimizer["own"], _held(parts, "own"))
        self.yardstick.load_state(last.optimizer["yardstick"])
        if self.critic is not None:
            own = last.optimizer.get("critic_own", {})
            self.critic.load_state(last.optimizer["critic"], own, _held(parts, "critic_own"))
        checkpoint.restore_random(last.random, rl=self.rng)
        if self.running is not None:
            self.running.load_state_dict(last.state["running"])
        if (scale := last.state.get("validation_scale")) is not None:
            self.validation_scale = RunningNormaliser()
            self.validation_scale.load_state_dict(scale)
        self.kl = last.state["kl"]
        best = last.state["best"]
        self.best = -float("inf") if best is None else best
        self.waited, self.upcoming, self.step = last.state["waited"], last.state["upcoming"], last.step + 1


def _held(parts: Sequence[Mapping[str, Any]], name: str) -> list[dict[str, Any]]:
    """The states called `name` of those processes that saved one."""
    return [part[name] for part in parts if part.get(name)]


def reinforce(
    system: System[Any],
    config: Config,
    actor: ActorCritic,
    model: Mapping[str, str],
    references: Mapping[str, Reference],
    log: Callable[[Mapping[str, Any]], None],
    folder: RunFolder,
    workers: Workers,
    room: float,
) -> None:
    """Train `actor` for `trainer.rl.updates` updates, or until `patience` evaluations brought nothing better.

    Starts after the newest checkpoint of `folder` where there is one, and forgets the rows of metrics.jsonl after it.
    The best policy by `trainer.rl.select` is kept there too (pointer "best"). A checkpoint is written while the next
    update is under way, where there is memory for its copy, and counts as soon as it is whole. model: what checkpoints
    must fit (ghar.trainers.runs.checkpoint.identity). workers: who plays the episodes; closed at the end. room:
    bytes of host memory that must be free for that copy.
    """
    rl, about = config.trainer.rl, TrainingInputs(system, config, references, folder)
    torch.manual_seed(derive_seed(config.seed, "rl"))  # what earlier phases drew must not matter to a resumed one
    rng = np.random.default_rng(derive_seed(config.seed, "rl"))
    critic = _critic(system, config, actor)  # before DeepSpeed shares out what it copies
    learner = learner_of(config, actor)
    if critic is not None and config.deepspeed.stage is not None:
        critic.shard(config.deepspeed, config.model.dtype)
    checkpoints, keep = folder.path / "checkpoints", checkpoint.KeepPolicy(config.keep_last, best=1)
    saving = CheckpointWriter(checkpoints, model, keep, room)
    loop = _Loop(learner, rng, running_of(system), saving, critic, rl.kl)
    last = _newest(checkpoints, model, keep)
    if last is not None:
        parts = checkpoint.parts_of(checkpoints, last)
        others = f", saved by {last.processes} processes (numbers differ by rounding)" if parts else ""
        on_main(lambda: print(f"Resuming reinforcement learning after update {last.step} of {rl.updates}{others}."))
        loop.go_on_from(last, parts)
    on_main(lambda: folder.rewind("rl", loop.step - 1))
    with closing(workers), finishing("this update") as asked, saving:
        stop = False
        while not stop and loop.step <= rl.updates and (rl.patience is None or loop.waited < rl.patience):
            row, score = _step(about, loop, workers)
            saving.collect()
            log(row)  # before the checkpoint: a resumed run cuts what is too much and cannot write what is missing
            stop = any(gather(asked()))  # a scheduler may tell the processes one after the other
            if stop or score is not None or loop.step % rl.save_every == 0:
                _save(about, loop, saving, score)
            loop.step += 1
        saving.finish()
        if stop or any(gather(asked())):
            raise KeyboardInterrupt


def _save(about: TrainingInputs, loop: _Loop, saving: CheckpointWriter, score: float | None) -> None:
    """Save this update: beside the next one where there is memory for the copy, else at once."""
    credentialed = about.system.origin.credentialed
    if saving.has_room():
        saving.begin(lambda: loop.checkpoint(score, credentialed))
    else:
        saving.save(lambda: loop.checkpoint(score, credentialed, copied=False))


def _step(about: TrainingInputs, loop: _Loop, workers: Workers) -> tuple[dict[str, Any], float | None]:
    """One update, and an evaluation where one is due: its row of metrics, and what the best weights are chosen by."""
    rl = about.config.trainer.rl
    row: dict[str, Any] = {"step": loop.step, "phase": "rl"}
    if loop.step > 0:
        row |= _update(about, loop, workers)
    if not _is_evaluated(loop.step, rl):
        return row, None
    numbers = _validate(about, loop, workers)
    score = _score(numbers, about.system.report.chosen_by(rl.select))
    loop.best, loop.waited = (score, 0) if score > loop.best else (loop.best, loop.waited + 1)
    return row | eval_metrics(numbers), score


def _is_evaluated(step: int, rl: RlConfig) -> bool:
    """Whether the policy is validated after this update."""
    return step % rl.eval_every == 0 or step == rl.updates


def _score(numbers: Mapping[str, Any], select: str) -> float:
    """The number that the best weights are chosen by; BadInput where an evaluation has none of that name."""
    if numbers.get(select) is None:
        names = ", ".join(eval_metrics(numbers))
        raise BadInput(f"trainer.rl.select={select} is no number of this system's evaluation, which gives {names}.")
    return float(numbers[select][0])


def _critic(system: System[Any], config: Config, actor: ActorCritic) -> Critic | None:
    rl = config.trainer.rl
    if not has_critic(config):
        return None
    own = CriticConfig(rl.value_epochs, rl.value_minibatches, rl.micro_tokens, rl.value_lr, rl.max_grad_norm)
    return Critic(actor, width(system.roles), own, config.seed)


def _newest(folder: Path, model: Mapping[str, str], keep: KeepPolicy) -> Checkpoint | None:
    """The checkpoint to go on from, in every process; process 0 tidies the folder first."""
    mine: list[Checkpoint | None] = []

    def choose() -> int | None:
        mine.append(checkpoint.newest(folder, model, keep))
        return None if mine[0] is None else mine[0].step

    step = on_main(choose)
    if mine or step is None:
        return mine[0] if mine else None
    return checkpoint.load(folder / f"step-{step}", model)


def _update(about: TrainingInputs, loop: _Loop, workers: Workers) -> dict[str, float]:
    """One batch: play, reward, train. Returns its part of the metrics."""
    config, rl, step = about.config, about.config.trainer.rl, loop.step
    start = time.monotonic()
    _order(about, loop, workers)
    cases, wait = loop.under_way.pop(0)
    episodes = wait()
    if loop.saving is not None:
        loop.saving.collect()
    middle = time.monotonic()
    rewards = _reward(about, episodes, cases, loop.running)
    check_finite(rewards, [case.sample_id for case in cases])
    mask = np.ones(len(episodes), bool) if not rl.dynamic else telling([c.sample_id for c in cases], rewards)
    kept = np.flatnonzero(mask).tolist()
    share = shares(rl.schedule, step, rl.updates)
    loop.learner.take(share["lr"])
    learn = _imitate if config.trainer.method == "rft" else _improve
    report = learn(about, loop, [episodes[i] for i in kept], [rewards[i] for i in kept])
    report |= {"lr": learning_rate(config) * share["lr"], "dropped": float(sum(gather(int((~mask).sum()))))}
    if _is_evaluated(loop.step, rl):
        kept_rows = sampled_rows(about.system, config, step, cases, episodes, rewards)
        if rank() == 0:
            about.folder.write_training_episodes(step, kept_rows)
    del loop.upcoming[: min(_patients(config), len(about.system.cases.train))]
    if workers.ahead:
        report["staleness"] = _staleness(episodes, step - 1)
    return {
        **{f"train/{name}": value for name, value in report.items()},
        **batch_report(about.system, episodes, rewards, cases),
        "time/rollout": middle - start,
        "time/update": time.monotonic() - middle,
    }


def _improve(
    about: TrainingInputs, loop: _Loop, episodes: Sequence[Episode], rewards: Sequence[EpisodeReward]
) -> dict[str, float]:
    """Take an update of multi-agent PPO. Returns its diagnostics."""
    rl, step = about.config.trainer.rl, loop.step
    traj = build(episodes, rewards, about.system.agents, about.system.roles)
    warm_up = 0 if loop.critic is None else rl.value_warmup
    with progress(rl.epochs * sum(r.trainable for r in traj.rows()), f"Update {step}", "turns") as advance:
        own = {"critic": loop.critic, "yardstick": loop.yardstick, "moves": step > warm_up, "earlier": loop.earlier}
        settings = scaled(replace(settings_of(about.config), kl=loop.kl), shares(rl.schedule, step, rl.updates))
        report = improve(loop.learner, traj, settings, loop.rng, advance, step - 1, **own)
    report |= {"kl/weight": settings.kl}
    if rl.kl_target is not None:
        loop.kl = adapted(loop.kl, report["kl/reference"], rl.kl_target)
    if alarm := loop.yardstick.alarm(report):
        on_main(lambda: print(f"update {step}: {alarm}", flush=True))
    return report | _tokens(traj, rl.epochs if step > warm_up else 0)


def _imitate(
    about: TrainingInputs, loop: _Loop, episodes: Sequence[Episode], rewards: Sequence[EpisodeReward]
) -> dict[str, float]:
    """Take a round of rejection-sampling fine-tuning. Returns its diagnostics."""
    rl, rft, system = about.config.trainer.rl, about.config.trainer.rft, about.system
    best = best_attempts(episodes, rewards, rft.keep, rft.min_reward)
    traj = build([episodes[i] for i in best], [rewards[i] for i in best], system.agents, system.roles)
    with progress(rl.epochs * sum(r.trainable for r in traj.rows()), f"Round {loop.step}", "turns") as advance:
        report = imitate(loop.learner, traj, rl, loop.rng, advance)
    return report | _tokens(traj, rl.epochs) | kept_report([r.total for r in rewards], best)


def _tokens(traj: Trajectories, epochs: int) -> dict[str, float]:
    """Count the tokens of all processes that the policy is trained on, once an epoch: replies, and the prompts before
    them."""
    rows = [row for row in traj.rows() if row.trainable]
    read = sum(row.prompt for row in rows)
    totals = epochs * np.sum(gather((read, sum(len(row.tokens) for row in rows) - read)), axis=0)
    return {f"tokens/{name}": float(total) for name, total in zip(("prompt", "reply"), totals, strict=True)}


def _order(about: TrainingInputs, loop: _Loop, workers: Workers) -> None:
    """Have the batch of this step played, unless it is under way, and those that may be played ahead of their step.

    A batch is ordered with the newest weights at most `workers.ahead` steps before its own, so that is the most updates
    its weights can lack when it is trained on.
    """
    config = about.config
    loop.earlier = {version: kept for version, kept in loop.earlier.items() if version >= loop.step - 1 - workers.ahead}
    for ahead in range(len(loop.under_way), workers.ahead + 1):
        step = loop.step + ahead
        if step > config.trainer.rl.updates:
            return
        patients = share(_batch(loop, about.system.cases.train, _patients(config), ahead))
        times = config.trainer.rl.attempts
        batch = [case for case in patients for _ in range(times)]
        attempts, seed = tuple(range(times)) * len(patients), derive_seed(config.seed, "rollout", step)
        order = RolloutRequest(batch, seed, config.engine.temperature, f"Rollout {step}", attempts)
        loop.under_way.append((batch, workers.begin(order, loop.learner, loop.step - 1)))
        if workers.ahead and loop.step - 1 not in loop.earlier:
            loop.earlier[loop.step - 1] = loop.weights()


def _patients(config: Config) -> int:
    """Cases of a batch, each of which is played trainer.rl.attempts times."""
    return max(1, config.trainer.rl.episodes // config.trainer.rl.attempts)


def _batch(loop: _Loop, cases: Sequence[Any], size: int, ahead: int) -> list[Any]:
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
    about: TrainingInputs, episodes: Sequence[Episode], cases: Sequence[Any], running: RunningNormaliser | None
) -> list[EpisodeReward]:
    shaping = about.system.training.shaping
    if shaping is None:
        return [about.system.reward(episode, case) for episode, case in zip(episodes, cases, strict=True)]
    if running is not None:
        _observe(shaping, episodes, running)
    return [
        shaping.reward(episode, case, about.references.get(case.sample_id), running)
        for episode, case in zip(episodes, cases, strict=True)
    ]


def _observe(shaping: RewardShaping, episodes: Sequence[Episode], running: RunningNormaliser) -> None:
    """Show a normaliser the costs of all processes' episodes. Every process calls it."""
    seen = _Seen()
    for episode in episodes:
        if episode.failure is None:
            seen.observe(shaping.costs(episode))
    running.observe(gather_rows(seen.values))


def check_finite(rewards: Sequence[EpisodeReward], sample_ids: Sequence[str]) -> None:
    """BadInput for a reward that is no finite number: one such teaches nothing and ends the critic."""
    for reward, sample_id in zip(rewards, sample_ids, strict=True):
        if not math.isfinite(reward.total) or not np.isfinite([reward.arriving()]).all():
            terms = ", ".join(f"{name} {value:g}" for name, value in reward.terms.items() if not math.isfinite(value))
            raise BadInput(
                f"The reward of sample {sample_id} is {reward.total:g}{f' ({terms})' if terms else ''}: the system's "
                "reward must be a finite number, so correct that term; what was saved stays."
            )


class _Seen(RunningNormaliser):
    """Keeps what it is shown, for the normaliser of all processes."""

    def __init__(self) -> None:
        super().__init__()
        self.values: list[tuple[str, float]] = []

    def observe(self, values: Iterable[tuple[str, float]]) -> None:
        self.values += values


def _validate(about: TrainingInputs, loop: _Loop, workers: Workers) -> dict[str, Any]:
    """The numbers of the most probable replies on validation cases.

    A running normaliser moves with the training batches, so the reward of the same episodes would too, by more than
    policies differ, and the best weights would be those of the first validation. One scale serves all.
    """
    system, config = about.system, about.config
    own = share(validation_cases(system, config.task, config.trainer.rl.eval_samples))
    order = RolloutRequest(own, config.seed, temperature=0.0, title=f"Validation {loop.step}")
    episodes = workers.begin(order, loop.learner, loop.step)()
    if loop.running is not None and loop.validation_scale is None and system.training.shaping is not None:
        loop.validation_scale = RunningNormaliser()
        _observe(system.training.shaping, episodes, loop.validation_scale)
    rewards = [reward_of(system, e, case, loop.validation_scale) for e, case in zip(episodes, own, strict=True)]
    rows = rows_of(system, system.variants[system.main], own, episodes, rewards, "valid")
    return summarise(system, gather_rows(rows), config.seed, CURVE_RESAMPLES)
