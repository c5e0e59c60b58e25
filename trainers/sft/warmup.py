"""Warm-up: rejection sampling by a teacher, then SFT on its correct episodes (section IV, GHAR), or on examples that a
system has written down itself.

A correct episode is a sample's positive reference, where the system's reward asks for one; the same sample played with
the opposite decisions is its negative one (Eq. 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.envs.play import PlayContext, play, stage_of
from ghar.envs.rollout import derive_seed
from ghar.envs.system import System
from ghar.episode import Episode
from ghar.llm.policy import Policy
from ghar.trainers.sft.arguments import SFTSettings
from ghar.trainers.sft.examples import TrainingExamples
from ghar.trainers.sft.run import Log, SFTResult, run_sft

WARMUP = 0.1  # warmup_ratio of KARE's Table 6, with validation pairs; its schedule is a cosine


def imitation(config: Config, pairs: int, epochs: int | None = None) -> SFTSettings:
    """The settings of SFT on `pairs` replies, `epochs` times over, by default trainer.warmup.epochs."""
    warmup, model = config.trainer.warmup, config.model
    return SFTSettings(
        steps=max(1, (epochs or warmup.epochs) * pairs // warmup.batch),
        batch_size=warmup.batch,
        lr=warmup.lr,
        micro_batch=warmup.micro_batch,
        max_length=model.max_length,
        finetune=model.finetune,
        rank=model.lora_rank or 0,
        alpha=model.lora_alpha,
        deepspeed=config.deepspeed,
        dtype=model.dtype,
        seed=config.seed,
    )


@dataclass(frozen=True)
class WarmupResult:
    """accepted: one correct teacher episode per sample that had one; references by sample id; rate: share accepted;
    rehearsed: correct episodes of each of `Training.rehearsal`."""

    accepted: tuple[Episode, ...]
    references: dict[str, Any]
    rate: float
    rehearsed: tuple[tuple[Episode, ...], ...] = ()


def sample_references(system: System[Any], config: Config, teacher: Policy, cases: Sequence[Any]) -> WarmupResult:
    """Let the teacher try each of `cases` up to `trainer.warmup.attempts` times, until it is right."""
    stage = stage_of(system, system.teacher_variant(), config)
    accepted: dict[str, Episode] = {}
    references: dict[str, Any] = {}
    for attempt in range(config.trainer.warmup.attempts):
        left = [case for case in cases if case.sample_id not in accepted]
        title = f"Teacher, attempt {attempt + 1}"
        episodes = play(stage, left, teacher, seed=config.seed, title=title, attempt=attempt)
        right = _right(left, episodes)
        accepted |= {case.sample_id: episode for case, episode in right}
        references |= _references(system, stage, right, teacher, attempt)
    rehearsed = _rehearsed(system, config, teacher, cases)
    return WarmupResult(tuple(accepted.values()), references, len(accepted) / len(cases), rehearsed)


def _rehearsed(
    system: System[Any], config: Config, teacher: Policy, cases: Sequence[Any]
) -> tuple[tuple[Episode, ...], ...]:
    """Right episodes of the other variants; which samples they are tried with depends on nothing but their names."""
    variant_episodes: list[tuple[Episode, ...]] = []
    for name, share in system.training.rehearsal.items():
        some = [c for c in cases if derive_seed(config.seed, "rehearsed", name, c.sample_id) % 1000 < 1000 * share]
        stage = stage_of(system, system.variants[name], config)
        episodes = play(stage, some, teacher, seed=config.seed, title=f"Teacher, {name}")
        variant_episodes.append(tuple(episode for _, episode in _right(some, episodes)))
    return tuple(variant_episodes)


def _right(cases: Sequence[Any], episodes: Sequence[Episode]) -> list[tuple[Any, Episode]]:
    return [
        (case, episode)
        for case, episode in zip(cases, episodes, strict=True)
        if episode.failure is None and episode.prediction.label == case.label
    ]


def _references(
    system: System[Any], stage: PlayContext, right: Sequence[tuple[Any, Episode]], teacher: Policy, attempt: int
) -> dict[str, Any]:
    """Correct episodes and their opposites, from the same attempt: so they differ by the decisions turned round and
    by what follows from them, not by other draws. Where the opposite failed there is no reference."""
    shaping = system.training.shaping
    if shaping is None:
        return {}
    cases, policy = [case for case, _ in right], shaping.opposite(teacher)
    title, seed = "Opposite decisions", stage.config.seed
    opposite = play(stage, cases, policy, seed=seed, title=title, attempt=attempt)
    return {
        case.sample_id: shaping.reference(episode, other)
        for (case, episode), other in zip(right, opposite, strict=True)
        if other.failure is None
    }


def learn(
    config: Config,
    model: Any,
    tokenizer: Any,
    examples: TrainingExamples,
    keep: Path | None,
    epochs: int | None = None,
    log: Log = lambda row, seconds: None,
    title: str = "SFT",
) -> SFTResult:
    """Fine-tune, full or by LoRA, `epochs` times over, by default trainer.warmup.epochs; checkpoints go to `keep`, rows
    of the curve to `log` as they are made; title: what the progress is shown under.

    With validation pairs the weights with the lowest loss on them are kept, which is computed every quarter of an epoch
    (Figure 2 of KARE's paper), and the settings are those of its Table 6.
    """
    settings = imitation(config, len(examples.train), epochs)
    if examples.valid:
        quarter = max(1, round(len(examples.train) / settings.batch_size / 4))
        settings = replace(settings, warmup=WARMUP, schedule="cosine", log_every=quarter)
    return run_sft(model, tokenizer, examples.train, settings, keep, examples.valid, log, title)
