"""A small world of one rule: every code has a severity, and the worst one is the label."""

from __future__ import annotations

from datetime import datetime, timedelta

import numpy as np
import pytest

from ghar.data.cohort import Sample, Visit
from ghar.envs.baselines.features import TrainingData
from ghar.envs.baselines.settings import Settings
from ghar.envs.baselines.stay_lengths import StayLengths

START = datetime(2020, 1, 1)
CODES, GRADES = 24, 4


def sample(number: int, visits: list[list[str]], label: int) -> Sample:
    """Visits of diagnoses, ten days apart."""
    days = [START + timedelta(days=10 * i) for i in range(len(visits))]
    history = tuple(Visit(100 * number + i, day, tuple(v)) for i, (day, v) in enumerate(zip(days, visits, strict=True)))
    return Sample(f"s{number}", number, history[-1].visit_id, days[-1], history, label)


def world(count: int, noise: float, first: int, severity: np.ndarray, labels: int = GRADES) -> list[Sample]:
    """Samples of two visits with three codes each; the newest one's worst severity is the label, `noise` of them not.

    labels: 2 asks only whether the worst severity is among the higher half.
    """
    rng, made = np.random.default_rng(first), []
    for i in range(count):
        older, newest = (rng.choice(len(severity), 3, replace=False) for _ in range(2))
        worst = int(severity[newest].max())
        label = worst if labels == GRADES else int(worst >= GRADES // 2)
        if rng.random() < noise:
            label = int(rng.integers(labels))
        made.append(sample(first + i, [[f"c{code}" for code in visit] for visit in (older, newest)], label))
    return made


def lengths_of(samples: list[Sample]) -> StayLengths:
    """The older of two stays lasts a day more than the label's number, the newest has no end yet."""
    return StayLengths({s.history[0].visit_id: s.history[0].start + timedelta(days=s.label + 1) for s in samples})


@pytest.fixture(scope="session")
def severity() -> np.ndarray:
    """i64[codes]: half of them harmless, the others of all grades."""
    return np.where(np.arange(CODES) < CODES // 2, 0, np.arange(CODES) % GRADES)


def known_of(severity: np.ndarray, noise: float = 0.1, labels: int = GRADES, count: int = 400) -> TrainingData:
    settings = Settings(hidden=16, epochs=12, patience=4, rounds=30, codes=20)
    train = world(count, noise, 10_000, severity, labels)
    return TrainingData(train, world(count // 4, noise, 30_000, severity, labels), labels, 0, settings)
