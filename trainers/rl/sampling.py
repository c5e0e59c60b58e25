"""Which patients a batch teaches from: those whose attempts differ, and more often the kinds that are still failed."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.trajectory import Array
from ghar.trainers.runs.distributed import gather

ALIKE = 1e-6  # rewards this close are the same
FORGET = 0.3  # weight of the newest batch in a kind's rate of success
LEAST = 0.1  # a kind that never fails is still drawn


def telling(sample_ids: Sequence[str], rewards: Sequence[EpisodeReward]) -> Array:
    """bool per episode: whether the attempts at its patient earned different rewards (dynamic sampling, Yu et al. 2025,
    "DAPO"). Against each other, attempts that all earned the same have no advantage; all are kept where no one's
    attempts differ in any process, so that an update always has something to look at. Every process calls it with all
    attempts at its own patients."""
    totals: dict[str, list[float]] = {}
    for sample, reward in zip(sample_ids, rewards, strict=True):
        totals.setdefault(sample, []).append(reward.total)
    kept = np.array([max(totals[s]) - min(totals[s]) > ALIKE for s in sample_ids])
    return kept if any(gather(bool(kept.any()))) else np.ones(len(kept), bool)


@dataclass
class Curriculum:
    """Draws patients by how often their kind is answered wrongly. strength: 0 draws all alike; weights are
    (rate of failure + LEAST) ** strength. success: a kind's rate, where it was met."""

    strength: float
    success: dict[str, float] = field(default_factory=dict)

    def observe(self, kinds: Sequence[Hashable], right: Sequence[bool]) -> None:
        """What a batch of all processes tells of the kinds in it."""
        for kind in dict.fromkeys(map(str, kinds)):
            rate = float(np.mean([r for k, r in zip(kinds, right, strict=True) if str(k) == kind]))
            self.success[kind] = (1 - FORGET) * self.success.get(kind, rate) + FORGET * rate

    def weights(self, kinds: Sequence[Hashable]) -> Array:
        """float64, positive; a kind that was not met counts as one that is never answered rightly."""
        failed = np.array([1.0 - self.success.get(str(kind), 0.0) for kind in kinds])
        return (failed + LEAST) ** self.strength

    def front(self, waiting: list[int], size: int, kinds: Sequence[Hashable], rng: np.random.Generator) -> list[int]:
        """`waiting` cases with the next `size` drawn from them, without replacement, at its front; kinds: of all."""
        if not self.strength:
            return waiting
        weights = self.weights([kinds[i] for i in waiting])
        drawn = rng.choice(len(waiting), min(size, len(waiting)), replace=False, p=weights / weights.sum())
        left = np.setdiff1d(np.arange(len(waiting)), drawn)
        return [waiting[i] for i in (*drawn, *left)]
