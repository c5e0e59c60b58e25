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
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.llm.policy import OppositePolicy, Policy
from rewards.compose import Reference
from rewards.terms import chain
from trainers.play import play
from trainers.study import Study


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
    for attempt in range(cfg.trainer.warmup.attempts):
        open_cases = [case for case in chosen if case.sample_id not in accepted]
        title = f"Teacher, attempt {attempt + 1}"
        for case, episode in zip(
            open_cases, play(study, open_cases, teacher, seed=cfg.seed, title=title, attempt=attempt), strict=True
        ):
            if episode.failure is None and episode.prediction.label == case.label:
                accepted[case.sample_id] = episode
    if not accepted:
        raise BadInput(
            f"trainer.warmup.teacher={cfg.trainer.warmup.teacher} answered none of {len(chosen)} samples correctly: "
            "raise trainer.warmup.attempts or samples, or choose another teacher."
        )
    positive = [case for case in chosen if case.sample_id in accepted]
    opposite = play(study, positive, OppositePolicy(teacher), seed=cfg.seed, title="Opposite decisions")
    references = {
        case.sample_id: Reference(chain(accepted[case.sample_id].prediction.history), chain(other.prediction.history))
        for case, other in zip(positive, opposite, strict=True)
    }
    return Warmup(tuple(accepted.values()), references, len(accepted) / len(chosen))
