"""Rows of episodes: what every system's have, what a system adds, and that each turn is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ghar.envs.play import play, stage_of
from ghar.envs.system import Reporting
from ghar.trainers.rows import episode_row, rows_of


@pytest.fixture(scope="module")
def played(small_system, small_records):
    """Twenty training cases as the teacher plays them, and the rewards."""
    cases = small_system.cases.train[:20]
    stage = stage_of(small_system, small_system.variant("scripted"), small_records.config)
    episodes = play(stage, cases, small_system.fixed["teacher"](), seed=0, title="")
    return cases, episodes, [small_system.reward(e, c) for e, c in zip(episodes, cases, strict=True)]


def test_an_episodes_row_tells_every_turn(small_system, played):
    variant = small_system.variant("scripted")
    rows = rows_of(small_system, variant, *played, "train")
    assert any(row["correct"] for row in rows) and any(row["retrieved"] for row in rows)
    for row, case, episode, reward in zip(rows, *played, strict=True):
        assert (row["policy"], row["split"], row["sample_id"]) == ("scripted", "train", case.sample_id)
        assert row["correct"] == (row["label"] == row["prediction"]) and row["failure"] is None
        assert row["label"] == small_system.task.labels[case.label]
        assert row["needs_retrieval"] is small_system.truth.needs(case)
        assert [t["role"] for t in row["turns"]] == [t.role for t in episode.turns]
        shown = [t["evidence"] for t in row["turns"] if t["role"] == "summarise"]
        assert shown == [s.evidence for s in episode.prediction.history if s.retrieved]
        assert row["retrieved"] == bool(shown) and row["iterations"] == len(episode.prediction.history)
        assert row["retrievals"] <= len(shown)  # a look-up on no meta-path asks nothing
        assert row["reward"] == pytest.approx(sum(row["weighted"].values())) == reward.total


def test_a_system_adds_to_its_rows_and_says_its_labels(small_system, played):
    report = Reporting(
        row=lambda episode, case, variant: {"of": f"{variant.name} {case.sample_id}"},
        answer=lambda case, label: f"grade {label}",
    )
    own = replace(small_system, report=report)
    (case, *_), (episode, *_), (reward, *_) = played
    row = episode_row(own, own.variant("scripted"), case, episode, reward, "test")
    assert row["of"] == f"scripted {case.sample_id}" and row["label"] == f"grade {case.label}"
    unread = replace(episode, prediction=replace(episode.prediction, label=None))
    row = episode_row(own, own.variant("scripted"), case, unread, reward, "test")
    assert row["prediction"] is None and not row["correct"]


def test_label_probabilities_are_the_rankers_unless_the_episode_has_its_own(small_system, played):
    cases, episodes, rewards = (part[:2] for part in played)
    own = replace(episodes[0], prediction=replace(episodes[0].prediction, probabilities=(0.9, 0.1)))
    rows = rows_of(
        small_system, small_system.variant("scripted"), cases, [own, episodes[1]], rewards, "test",
        lambda some: [(0.5, 0.5)] * len(some),
    )  # fmt: skip
    assert [row["label_probabilities"] for row in rows] == [[0.9, 0.1], [0.5, 0.5]]
