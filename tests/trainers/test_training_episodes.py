"""The few training episodes that a run keeps: the same ones for any number of processes, with their rewards."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from ghar.envs.play import play, stage_of
from ghar.rewards.normalise import RunningNormaliser
from ghar.trainers.rl import batch_report
from ghar.trainers.rl.batch_report import KEPT, sampled_rows
from ghar.trainers.rl.loop import _reward


@pytest.fixture(scope="module")
def batch(small_system, small_records):
    """Eight training cases, each played twice by the teacher, and the rewards."""
    cases = [case for case in small_system.cases.train[:8] for _ in range(2)]
    stage = stage_of(small_system, small_system.variant("scripted"), small_records.config)
    episodes = play(stage, cases, small_system.fixed["teacher"](), seed=0, title="")
    return cases, episodes, [small_system.reward(e, c) for e, c in zip(episodes, cases, strict=True)]


@pytest.fixture(scope="module")
def config(small_records):
    trainer = small_records.config.trainer
    return replace(small_records.config, trainer=replace(trainer, rl=replace(trainer.rl, attempts=2)))


def test_rows_have_turns_update_attempt_and_the_reward_learned_from(small_system, config, batch):
    cases, episodes, rewards = batch
    rows = sampled_rows(small_system, config, 10, cases, episodes, rewards)
    assert len(rows) == KEPT and all(row["turns"] and row["update"] == 10 and row["split"] == "train" for row in rows)
    assert len({(row["sample_id"], row["attempt"]) for row in rows}) == KEPT
    of = {(case.sample_id, i % 2): reward.total for i, (case, reward) in enumerate(zip(cases, rewards, strict=True))}
    assert [row["reward"] for row in rows] == [of[row["sample_id"], row["attempt"]] for row in rows]


def test_which_are_kept_depends_on_seed_and_update_and_on_no_number_of_processes(
    small_system, config, batch, monkeypatch
):
    def ids(update=10, seed=config.seed, parts=(slice(0, 16),)):
        shares: list = []
        monkeypatch.setattr(batch_report, "gather_rows", lambda rows: shares.extend(rows) or list(shares))
        for part in parts:
            cases, episodes, rewards = (own[part] for own in batch)
            rows = sampled_rows(small_system, replace(config, seed=seed), update, cases, episodes, rewards)
        return [(row["sample_id"], row["attempt"]) for row in rows]

    alone = ids()
    assert ids(parts=(slice(0, 6), slice(6, 16))) == alone
    assert ids(parts=(slice(0, 2), slice(2, 14), slice(14, 16))) == alone
    assert ids(update=20) != alone and ids(seed=1) != alone


def test_a_failed_episode_shows_the_normaliser_nothing(small_system, batch):
    cases, episodes, _ = batch
    about: Any = SimpleNamespace(system=small_system, references={})
    seen, expected = RunningNormaliser(), RunningNormaliser()
    for episode in episodes[1:]:
        expected.observe(small_system.training.shaping.costs(episode))
    _reward(about, [replace(episodes[0], failure="engine"), *episodes[1:]], cases, seen)
    assert seen.state_dict() == expected.state_dict() and any(count for count, *_ in seen.state_dict().values())
