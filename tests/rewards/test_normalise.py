"""Normalisation of the cost terms."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.rewards.normalise import RunningNormaliser, bounds, to_range


@given(st.floats(-5, 5), st.floats(-3, 3), st.floats(0, 3))
def test_to_range_stays_in_range_and_keeps_order(value: float, worst: float, width: float) -> None:
    best = worst + width
    assert -1.0 <= to_range(value, worst, best) <= 0.0
    assert to_range(value, worst, best) <= to_range(value + 0.5, worst, best)
    assert to_range(best, worst, best) == 0.0
    if width > 1e-6:
        assert to_range(worst, worst, best) == pytest.approx(-1.0)


def test_bounds_are_reached_by_the_terms() -> None:
    limits = bounds(length=3, max_iterations=5, max_paths=3)
    assert limits == {"reason": (1 - 5 / 3, 1 - 1 / 3), "path": (-1.5, 3.0), "relevance": (0.0, 2.0)}


def test_a_single_allowed_step_is_no_cost() -> None:
    assert to_range(1 - 1 / 3, *bounds(3, 1, 3)["reason"]) == 0.0


@given(st.lists(st.floats(-3, 3), min_size=2, max_size=40))
def test_running_equals_moments_of_all_values(values: list[float]) -> None:
    running = RunningNormaliser()
    for half in (values[: len(values) // 2], values[len(values) // 2 :]):
        running.observe(("path", v) for v in half)
    std = float(np.std(values))
    if std > 1e-3:
        assert running("path", 0.7) == pytest.approx((0.7 - np.mean(values)) / std, rel=1e-6, abs=1e-6)
    assert running("reason", 0.7) == 0.7


def test_running_survives_a_checkpoint() -> None:
    before = RunningNormaliser()
    before.observe([("reason", 0.1), ("reason", 0.5), ("relevance", 1.2)])
    after = RunningNormaliser()
    after.load_state_dict(json.loads(json.dumps(before.state_dict())))
    for running in (before, after):
        running.observe([("reason", -0.4)])
    assert after("reason", 0.3) == before("reason", 0.3)
    assert after.state_dict() == before.state_dict()
