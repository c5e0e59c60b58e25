"""Which patients a batch teaches from: those whose attempts differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rl.trajectory import Array
from ghar.trainers.runs.distributed import gather

ALIKE = 1e-6  # rewards this close are the same


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
