"""Warm-up: rejection sampling by a teacher, then SFT on its correct episodes (section IV, GHAR).

A correct episode is a sample's positive reference; the same sample played with every retrieve-or-not decision turned
round is its negative one (Eq. 15).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from envs.case import Case
from envs.rollout import derive_seed
from ghar.config import Config
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.llm.policy import OppositePolicy, Policy
from rewards.compose import Reference
from rewards.terms import chain
from trainers.play import play
from trainers.rl.learner import sharing
from trainers.sft.run import SFTSettings
from trainers.study import Study


def imitation(config: Config, pairs: int) -> SFTSettings:
    """The settings of SFT on `pairs` replies, `trainer.warmup.epochs` times over."""
    warmup, model = config.trainer.warmup, config.model
    return SFTSettings(
        steps=max(1, warmup.epochs * pairs // warmup.batch),
        batch_size=warmup.batch,
        lr=warmup.lr,
        micro_batch=warmup.micro_batch,
        finetune=model.finetune,
        rank=model.lora_rank,
        alpha=model.lora_alpha,
        deepspeed=sharing(config),
        dtype=model.dtype,
        seed=config.seed,
    )


@dataclass(frozen=True)
class Warmup:
    """accepted: one correct teacher episode per sample that had one; references by sample id; rate: share accepted."""

    accepted: tuple[Episode, ...]
    references: dict[str, Reference]
    rate: float


def sample_references(study: Study, cases: Sequence[Case], teacher: Policy) -> Warmup:
    """Let the teacher try each of `trainer.warmup.samples` cases up to `attempts` times, until it is right.

    BadInput when it never is.
    """
    cfg = study.config
    rng = np.random.default_rng(derive_seed(cfg.seed, "warmup"))
    chosen = [cases[i] for i in sorted(rng.permutation(len(cases))[: cfg.trainer.warmup.samples])]
    accepted: dict[str, Episode] = {}
    references: dict[str, Reference] = {}
    for attempt in range(cfg.trainer.warmup.attempts):
        open_cases = [case for case in chosen if case.sample_id not in accepted]
        title = f"Teacher, attempt {attempt + 1}"
        episodes = play(study, open_cases, teacher, seed=cfg.seed, title=title, attempt=attempt)
        right = [
            (case, episode)
            for case, episode in zip(open_cases, episodes, strict=True)
            if episode.failure is None and episode.prediction.label == case.label
        ]
        accepted |= {case.sample_id: episode for case, episode in right}
        references |= _references(study, right, teacher, attempt)
    if not accepted:
        raise BadInput(
            f"trainer.warmup.teacher={cfg.trainer.warmup.teacher} answered none of {len(chosen)} samples correctly: "
            "raise trainer.warmup.attempts or samples, or choose another teacher."
        )
    return Warmup(tuple(accepted.values()), references, len(accepted) / len(chosen))


def _references(
    study: Study, right: Sequence[tuple[Case, Episode]], teacher: Policy, attempt: int
) -> dict[str, Reference]:
    """Correct episodes and their opposites, from the same attempt: so they differ by the decisions turned round and
    by what follows from them, not by other draws. Where the opposite failed there is no reference."""
    cases, policy = [case for case, _ in right], OppositePolicy(teacher)
    opposite = play(study, cases, policy, seed=study.config.seed, title="Opposite decisions", attempt=attempt)
    return {
        case.sample_id: Reference(chain(episode.prediction.history), chain(other.prediction.history))
        for (case, episode), other in zip(right, opposite, strict=True)
        if other.failure is None
    }
