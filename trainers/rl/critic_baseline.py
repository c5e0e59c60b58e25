"""What a critic must be worth: gradient boosting on plain numbers of the episode so far, fitted on the updates before
and scored on the episodes of this one, which neither has learned from."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghar.trainers.rl.trajectory import Array

BATCHES = 8  # newest updates that boosting learns from: the policy, and so what states are worth, moves on
TREES = 60
WAIT = 10  # updates before a critic is judged
LATELY = 5  # updates whose mean decides
NOTHING = 0.02  # explained variance up to which a critic is worth no more than a constant
ALARM = (
    "the critic explains no more than a constant would (explained variance {:.2f} over the last {} updates), so "
    "advantages are returns with a constant baseline: give it more steps (trainer.rl.value_epochs, value_lr), or do "
    "without one, with trainer.rl.estimator=rloo and trainer.rl.attempts=4."
)


@dataclass
class CriticBaseline:
    """The numbers and returns of the last batches, what the critic explained of each, and whether that was an alarm."""

    batches: deque[tuple[Array, Array]] = field(default_factory=lambda: deque(maxlen=BATCHES))
    explained: list[float] = field(default_factory=list)
    alarmed: bool = False

    def measure(self, numbers: Array, values: Array, returns: Array) -> dict[str, float]:
        """How much of the variance of returns [n] the critic's values [n] and boosting on numbers [n, F] explain; then
        the batch joins those that boosting learns from.

        explained_variance/boosting is absent at the first batch; both are where all returns are alike.
        critic/worthless: 1 where, after WAIT updates, the critic explained no more than a constant lately.
        """
        report: dict[str, float] = {}
        if returns.var() > 0:
            self.explained.append(explained(values, returns))
            report["explained_variance"] = self.explained[-1]
            if self.batches:
                report["explained_variance/boosting"] = explained(self._boosted(numbers), returns)
        self.batches.append((numbers.astype(np.float32), returns.astype(np.float32)))
        if len(self.explained) >= WAIT:
            report["critic/worthless"] = float(np.mean(self.explained[-LATELY:]) <= NOTHING)
        return report

    def alarm(self, report: Mapping[str, float]) -> str | None:
        """A sentence for the first report of `measure` that says the critic is worthless."""
        if self.alarmed or not report.get("critic/worthless"):
            return None
        self.alarmed = True
        return ALARM.format(float(np.mean(self.explained[-LATELY:])), LATELY)

    def _boosted(self, numbers: Array) -> Array:
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor(
            max_iter=TREES,
            min_samples_leaf=30,
            max_leaf_nodes=15,
            random_state=0,
            early_stopping=False,  # pyright: ignore[reportArgumentType]
        )
        features, returns = (np.concatenate(column) for column in zip(*self.batches, strict=True))
        return model.fit(features, returns).predict(numbers)

    def state(self) -> dict[str, Any]:
        """A copy, for a checkpoint."""
        import torch

        batches = [(torch.tensor(x), torch.tensor(y)) for x, y in self.batches]
        return {"batches": batches, "explained": list(self.explained), "alarmed": self.alarmed}

    def load_state(self, state: dict[str, Any]) -> None:
        """Undo `state` in place."""
        self.batches = deque(((x.numpy(), y.numpy()) for x, y in state["batches"]), maxlen=BATCHES)
        self.explained, self.alarmed = list(state["explained"]), state["alarmed"]


def explained(values: Array, returns: Array) -> float:
    """1 - Var(returns - values) / Var(returns): 1 perfect, 0 what a constant explains."""
    return float(1.0 - (returns - values).var() / returns.var())
