"""The baselines as a system: any task of visits, no one asked, nothing looked up, and what a summary says of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from ghar.envs.baselines.fitted import EVERY, EVIDENCED, FITS
from ghar.envs.records import Records
from ghar.envs.system import WORDS, build
from ghar.episode import Retrieve
from ghar.launch.entry import load
from ghar.trainers.evaluation.evaluate import evaluate

TINY = ("system=baselines", "data.patients=120", "task.max_test=20", "eval.bootstrap=20", "threads=1")


@pytest.mark.slow
@pytest.mark.parametrize("task", ["read", "dec", "kare_mortality", "guo_los", "los_24h", "mortality_24h"])
def test_it_answers_every_task_of_visits(task: str, cache: Path):
    system = build(Records(load([*TINY, f"data.cache={cache}", f"task={task}"])))
    assert set(system.variants) == set(EVERY) and set(system.listed) == {*FITS, *EVIDENCED}
    assert all(variant.who == "" for variant in system.variants.values())
    assert system.read_by(WORDS) is system and system.training.teacher is None and not system.fixed
    for name in ("usual", "severities", "memory"):
        episode = system.episode(system.cases.test[0], system.variants[name])
        with pytest.raises(StopIteration) as end:
            next(episode)
        found = end.value.value
        assert len(found.probabilities) == len(system.task.labels) and not found.history
    with pytest.raises(RuntimeError, match="looks nothing up"):
        system.corpus.retrieve([Retrieve("anything")])


@pytest.mark.slow
def test_an_evaluation_tells_what_validation_chose(cache: Path, tmp_path: Path):
    own = ("task=los", "eval.variants=[counts_lr,severities,memory]", f"run_dir={tmp_path}")
    summary = evaluate(load([*TINY, f"data.cache={cache}", *own]))
    assert summary["main"] == "counts_lr" and "counts_lr - memory" in summary["differences"]
    assert set(summary["chosen"]["memory"]) == {"visits", "neighbours"} and summary["chosen"]["counts_lr"]["C"] > 0
    assert all(who == "no one" for who in summary["answered_by"].values())
    for numbers in summary["policies"].values():
        assert {"accuracy", "auroc", "ece", "brier"} <= set(numbers) and numbers["tokens"] == [0, 0, 0]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("baselines")
