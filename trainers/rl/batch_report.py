"""What a batch of training episodes tells by itself, before it is learned from: its numbers, and a few of its episodes
for readers of the run, with what was asked, answered, found and rewarded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.config import Config
from ghar.envs.rollout import derive_seed
from ghar.envs.system import System
from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.rows import Row, episode_row
from ghar.trainers.runs.distributed import gather_rows

KEPT = 4  # episodes an update, for readers


@dataclass(frozen=True)
class _Outcome:
    """What the report of a batch says of an episode. needs: whether a look-up was needed, None where no one knows."""

    reward: EpisodeReward
    right: bool
    retrieved: bool
    needs: bool | None
    iterations: int
    malformed: tuple[bool, ...]
    completed: tuple[bool, ...]
    failed: bool


def batch_report(
    system: System[Any], episodes: Sequence[Episode], rewards: Sequence[EpisodeReward], cases: Sequence[Any]
) -> dict[str, float]:
    """What the batch of all processes itself tells: rewards per term, accuracy, retrieval, format errors."""
    outcomes = gather_rows(
        [
            _Outcome(
                reward=reward,
                right=episode.prediction.label == case.label,
                retrieved=any(step.retrieved for step in episode.prediction.history),
                needs=system.truth.needs(case),
                iterations=len(episode.prediction.history),
                malformed=tuple(not turn.format_ok for turn in episode.turns),
                completed=tuple(turn.completed for turn in episode.turns),
                failed=episode.failure is not None,
            )
            for episode, reward, case in zip(episodes, rewards, cases, strict=True)
        ]
    )
    malformed = [wrong for o in outcomes for wrong in o.malformed]
    report = {
        "train/reward/total": float(np.mean([o.reward.total for o in outcomes])),
        "train/accuracy": float(np.mean([o.right for o in outcomes])),
        "train/retrieval_rate": float(np.mean([o.retrieved for o in outcomes])),
        "train/iterations": float(np.mean([o.iterations for o in outcomes])),
        "train/format_errors": float(np.mean(malformed)) if malformed else 0.0,
        "train/failures": float(sum(o.failed for o in outcomes)),
    }
    completed = [chosen for o in outcomes for chosen in o.completed]
    if any(completed):
        report["train/completed_decisions"] = float(np.mean(completed))
    for term in outcomes[0].reward.terms:
        report[f"train/reward/{term}"] = float(np.mean([o.reward.terms[term] for o in outcomes]))
    when_correct = [o.needs == o.retrieved for o in outcomes if o.needs is not None]
    if when_correct:
        report["train/when_correct"] = float(np.mean(when_correct))
    return report


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
