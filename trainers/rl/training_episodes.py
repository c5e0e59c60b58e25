"""A few episodes of training batches, kept for readers of the run: what was asked, answered, found and rewarded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ghar.config import Config
from ghar.envs.rollout import derive_seed
from ghar.envs.system import System
from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rows import Row, episode_row
from ghar.trainers.runs.distributed import gather_rows

KEPT = 4  # episodes an update


def sampled_rows(
    system: System[Any],
    config: Config,
    update: int,
    cases: Sequence[Any],
    episodes: Sequence[Episode],
    rewards: Sequence[EpisodeReward],
) -> list[Row]:
    """Draw `KEPT` episodes of all processes' batch; their rows, with the rewards that were learned from.

    Which ones depends on the seed, the update, the sample and the attempt alone, so that a resumed run and any number
    of processes keep the same. Every process calls it with its own share. It uses no random generator of the loop.
    """
    attempts = config.trainer.rl.attempts

    def place(i: int) -> int:
        return derive_seed(config.seed, "training episodes", update, cases[i].sample_id, i % attempts)

    own = sorted(range(len(cases)), key=place)[:KEPT]
    variant = system.variants[system.main]
    rows = []
    for i in own:
        row = episode_row(system, variant, cases[i], episodes[i], rewards[i], "train")
        rows.append((place(i), {**row, "update": update, "attempt": i % attempts}))
    return [row for _, row in sorted(gather_rows(rows), key=lambda pair: pair[0])[:KEPT]]
