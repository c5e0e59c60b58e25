"""What the best weights are chosen by: one measure, whatever was trained on in between."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pytest

from ghar.envs.play import play, stage_of, validation_cases
from ghar.envs.system import build
from ghar.trainers.rl.loop import _Loop, _reward, _validate
from ghar.trainers.rows import running_of


@pytest.fixture(scope="module")
def about(small_config, small_records) -> Any:
    """The small system with costs in units of their running deviation."""
    config = small_config("system.normalise=running")
    system = build(type(small_records)(config))
    return SimpleNamespace(system=system, config=config, references={})


def teacher_plays(about: Any) -> Any:
    """Workers whose every episode is the scripted teacher's."""

    def begin(order: Any, learner: object, version: int) -> Any:
        stage = stage_of(about.system, about.system.variant("scripted"), about.config)
        return lambda: play(stage, order.cases, about.system.fixed["teacher"](), seed=0, title="")

    return SimpleNamespace(begin=begin)


def trained_batch(about: Any, loop: _Loop) -> None:
    """Let the loop's normaliser see a batch of training episodes."""
    workers, cases = teacher_plays(about), about.system.cases.train[:60]
    _reward(about, workers.begin(SimpleNamespace(cases=cases), None, 0)(), cases, loop.running)


def test_the_same_episodes_are_worth_the_same_at_every_validation(about: Any) -> None:
    learner: Any = None
    loop = _Loop(learner, learner, running_of(about.system))
    before = _validate(about, loop, teacher_plays(about))["reward"][0]
    trained_batch(about, loop)
    after = _validate(about, loop, teacher_plays(about))["reward"][0]
    assert after == before


def test_a_resumed_loop_keeps_the_scale(about: Any) -> None:
    def fresh() -> _Loop:
        return _Loop(MagicMock(), np.random.default_rng(0), running_of(about.system))

    loop, resumed = fresh(), fresh()
    before = _validate(about, loop, teacher_plays(about))["reward"][0]
    trained_batch(about, loop)
    kept = loop.checkpoint(before, credentialed=False)
    resumed.go_on_from(replace(kept, state=json.loads(json.dumps(kept.state)), optimizer=MagicMock()), ())
    assert _validate(about, resumed, teacher_plays(about))["reward"][0] == before


def test_few_validation_cases_are_drawn_and_the_same_for_every_seed(small_system, small_config) -> None:
    """The first ones of a cohort are alike: those of eICU are of a tenth of its hospitals."""
    few = small_config("trainer.rl.eval_samples=20")
    chosen = ids(chosen_cases(small_system, few))
    everyone = ids(small_system.cases.valid)
    assert chosen == [one for one in everyone if one in chosen] and len(chosen) == 20
    assert everyone.index(chosen[-1]) > len(everyone) / 2
    assert ids(chosen_cases(small_system, small_config("trainer.rl.eval_samples=20", "seed=1"))) == chosen
    assert ids(chosen_cases(small_system, small_config())) == everyone


def test_balanced_neighbours_are_drawn_together(small_system, small_config) -> None:
    """A square of order check has as many yes as no; half of one has not."""
    squares = replace(small_system, block=4)
    cases = ids(small_system.cases.valid)
    few = chosen_cases(squares, small_config("trainer.rl.eval_samples=20"))
    chosen = [cases.index(one) // 4 for one in ids(few)]
    assert chosen == [square for square in dict.fromkeys(chosen) for _ in range(4)] and len(chosen) == 20


def test_weights_are_chosen_on_the_drawn_cases(small_system, small_config) -> None:
    config, asked = small_config("trainer.rl.eval_samples=20"), []
    about: Any = SimpleNamespace(system=small_system, config=config, references={})
    begin = teacher_plays(about).begin

    def seen(order: Any, learner: object, version: int) -> Any:
        asked.extend(order.cases)
        return begin(order, learner, version)

    learner: Any = None
    workers: Any = SimpleNamespace(begin=seen)
    _validate(about, _Loop(learner, learner, None), workers)
    assert ids(asked) == ids(chosen_cases(small_system, config)) != ids(small_system.cases.valid[:20])


def chosen_cases(system: Any, config: Any) -> list[Any]:
    return validation_cases(system, config.task, config.trainer.rl.eval_samples)


def ids(cases: Sequence[Any]) -> list[str]:
    """Sample ids, in order."""
    return [case.sample_id for case in cases]
