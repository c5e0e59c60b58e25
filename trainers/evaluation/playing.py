"""A variant on a split: its rows, and what is fitted on validation rows for those of the test."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.envs.play import play, stage_of, validation_cases
from ghar.envs.system import System, Variant
from ghar.llm.policy import Policy
from ghar.metrics.calibration import temperature
from ghar.metrics.clinical import best_threshold
from ghar.rewards.normalise import RunningNormaliser
from ghar.trainers.rows import Ranker, Row, reward_of, rows_of
from ghar.trainers.sharding import parted, play_parts, rows_in

TITLES = {"test": "Evaluating", "valid": "Calibrating", "train": "Playing"}


@dataclass(frozen=True)
class EvaluationRun:
    """An evaluation under way. running: the normaliser of rewards; home: the folder for its parts."""

    system: System[Any]
    config: Config
    running: RunningNormaliser | None
    home: Path

    def play(
        self, variant: Variant, policy: Policy, split: str, ranker: Ranker | None = None,
        cases: Sequence[Any] | None = None,
    ) -> Callable[[], Iterator[Row]]:  # fmt: skip
        """`score` in parts, by all processes; returns what reads the rows from the disk. cases: some of the split."""
        own = getattr(self.system.cases, split) if cases is None else cases
        parts = parted(own, self.config.env.in_flight)
        folder = self.home / (variant.name if split == "test" else f"{variant.name}-{split}")
        prepared: list[Variant] = []

        def ready() -> None:  # may take long, and is for nothing where all has been played
            prepared.append(self.system.prepare(variant, policy))

        def make(cases: Sequence[Any]) -> list[Row]:
            return _score(self.system, self.config, prepared[0], policy, split, cases, self.running, ranker)

        play_parts(folder, parts, make, ready, _title(split, variant))
        return partial(rows_in, folder, parts)

    def fitted(self, variant: Variant, policy: Policy, ranker: Ranker) -> dict[str, float]:
        """{"temperature": the one at which the variant's label probabilities on validation cases are most likely}, and
        their `threshold`; {} where no one knows how probable a label was."""
        cases = validation_cases(self.system, self.config.task, self.config.trainer.rl.eval_samples)
        judged = list(self.play(variant, policy, "valid", ranker, cases)())
        labels = self.system.task.labels
        if not has_probabilities(judged):
            return {}
        return {"temperature": temperature(judged, labels), **threshold(judged, labels)}


def threshold(judged: Sequence[Row], labels: Sequence[str]) -> dict[str, float]:
    """{"threshold": the probability of class 1 from which on to say yes: that of the highest F1 on validation rows}; {}
    where there are not two labels, or no probabilities."""
    rows = [row for row in judged if row["label_probabilities"] is not None]
    if len(labels) != 2 or not rows:
        return {}
    truth = [labels.index(row["label"]) for row in rows]
    return {"threshold": best_threshold(truth, [min(1.0, row["label_probabilities"][1]) for row in rows])}


def with_all(extra: Mapping[str, float], rows: Iterable[Row]) -> Iterator[Row]:
    return ({**row, **extra} for row in rows)


def has_probabilities(rows: Iterable[Row]) -> bool:
    """Whether anybody knows how probable a label was."""
    return any(row["label_probabilities"] is not None for row in rows)


def score(
    system: System[Any],
    config: Config,
    variant: Variant,
    policy: Policy,
    split: str,
    running: RunningNormaliser | None = None,
    ranker: Ranker | None = None,
    cases: Sequence[Any] | None = None,
) -> list[Row]:
    """Play a split, or those `cases` of it, by a variant and return its rows. Rewards leave out what needs a warm-up's
    references."""
    variant = system.prepare(variant, policy)
    own = getattr(system.cases, split) if cases is None else cases
    return _score(system, config, variant, policy, split, own, running, ranker)


def _title(split: str, variant: Variant) -> str:
    return f"{TITLES[split]} {variant.name}"


def _score(
    system: System[Any],
    config: Config,
    variant: Variant,
    policy: Policy,
    split: str,
    cases: Sequence[Any],
    running: RunningNormaliser | None,
    ranker: Ranker | None,
) -> list[Row]:
    """The rows of some cases of a split, played by a variant that is prepared."""
    stage = stage_of(system, variant, config)
    episodes = play(stage, cases, policy, seed=config.seed, title=_title(split, variant))
    rewards = [reward_of(system, e, case, running) for e, case in zip(episodes, cases, strict=True)]
    whose = config.task.played if split == "test" else split
    return rows_of(system, variant, cases, episodes, rewards, whose, ranker)
