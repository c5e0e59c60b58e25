"""What a batch of training episodes tells by itself, before it is learned from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ghar.envs.system import System
from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward
from ghar.trainers.runs.distributed import gather_rows


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
