"""The training loop and who plays for it: which batch is ordered when, with which weights."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.envs.rollout import derive_seed
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.trainers.recipe import train
from ghar.trainers.rl.loop import _batch, _Loop, _order
from ghar.trainers.rl.workers import RolloutRequest

CONFIG = load()


class Notebook:
    """`Workers` that write down what is ordered."""

    def __init__(self, ahead: int) -> None:
        self.ahead, self.orders = ahead, []

    def begin(self, order: RolloutRequest, learner: Any, version: int) -> Callable[[], list[Any]]:
        self.orders.append((order, version))
        return lambda: []


def learned_on(updates: int, episodes: int, cases: int) -> Any:
    trainer = replace(CONFIG.trainer, rl=replace(CONFIG.trainer.rl, updates=updates, episodes=episodes, attempts=1))
    system = SimpleNamespace(cases=SimpleNamespace(train=range(cases)))
    return SimpleNamespace(config=replace(CONFIG, trainer=trainer), system=system)


def walk(ahead: int, updates: int, episodes: int, cases: int) -> tuple[list[Any], list[tuple[RolloutRequest, int]]]:
    """Batches in the order in which they are trained on, and all orders."""
    actor = SimpleNamespace(trainable_state=dict)  # weights are kept for as long as an order may be of them
    loop: Any = _Loop(SimpleNamespace(module=actor, whole=nullcontext), np.random.default_rng(3), None)  # type: ignore[arg-type]
    workers, about, trained = Notebook(ahead), learned_on(updates, episodes, cases), []
    for loop.step in range(1, updates + 1):
        _order(about, loop, workers)  # type: ignore[arg-type]
        trained.append(loop.under_way.pop(0)[0])
        del loop.upcoming[: min(episodes, cases)]
    return trained, workers.orders


@given(st.integers(0, 4), st.integers(1, 7), st.integers(1, 5), st.integers(1, 9))
def test_every_batch_is_ordered_once_with_weights_within_the_bound(ahead, updates, episodes, cases):
    trained, orders = walk(ahead, updates, episodes, cases)
    assert [list(order.cases) for order, _ in orders] == [list(batch) for batch in trained]
    for step, (order, version) in enumerate(orders, 1):
        assert order.seed == derive_seed(0, "rollout", step)
        assert version == max(0, step - 1 - ahead)
    size = min(episodes, cases)
    flat = [case for batch in trained for case in batch]
    passes = [flat[i : i + cases] for i in range(0, len(flat) - cases + 1, cases)]
    assert all(len(set(batch)) == size for batch in trained)
    assert cases % size or all(sorted(part) == list(range(cases)) for part in passes)


def test_what_is_ordered_ahead_is_what_comes_next_and_what_a_resumed_run_orders_again():
    loop: Any = _Loop(SimpleNamespace(module=None), np.random.default_rng(3), None)  # type: ignore[arg-type]
    ahead = [_batch(loop, range(10), 4, k) for k in range(3)]  # type: ignore[arg-type]
    kept = json.loads(json.dumps(loop.upcoming))
    again: Any = _Loop(SimpleNamespace(module=None), np.random.default_rng(9), None, upcoming=kept)  # type: ignore[arg-type]
    for batch in ahead:
        assert _batch(again, range(10), 4, 0) == batch  # type: ignore[arg-type]
        del again.upcoming[:4]


def test_staleness_without_rays_launcher_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="needs launch/train_ray"):
        train(load(["ray=cluster", "ray.max_staleness=1", f"run_dir={tmp_path}"]))
