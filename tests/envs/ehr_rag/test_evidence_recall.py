"""Evidence recall and its reward on generated long histories; a MEDS folder with a question in the user's words."""

from __future__ import annotations

import json
import shutil
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghar.envs.ehr_rag.episode import EventPrediction
from ghar.envs.ehr_rag.evidence_recall import by_step, compute_evidence_bound, gains, recalls
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import System, build
from ghar.envs.worlds.histories.story import critical
from ghar.envs.worlds.histories.world import QUESTION, long_folder
from ghar.episode import Act, Episode, Reply
from ghar.errors import BadInput
from ghar.launch.entry import load

SMALL = ("system.chunk_rows=20", "system.chunk_overlap=2", "data.patients=40", "task.max_test=6", "system.tokens=3000")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("gold")


@pytest.fixture(scope="module")
def system(cache: Path) -> System[Any]:
    return made("data=demo_long_small", "task=labels", f"data.cache={cache}")


@pytest.fixture(scope="module")
def played(system: System[Any]) -> list[Episode]:
    return play(system, "scripted")


def made(*overrides: str) -> System[Any]:
    return build(Records(load(["system=ehr_rag", *SMALL, *overrides])))


def play(system: System[Any], name: str) -> list[Episode]:
    variant = system.variant(name)
    jobs = [EpisodeJob(case.sample_id, 0, partial(system.episode, case, variant)) for case in system.cases.test]
    policy = system.fixed[variant.who]()
    episodes = rollout(jobs, dict.fromkeys(system.agents, policy), system.corpus, seed=0, in_flight=8)
    assert [episode.failure for episode in episodes] == [None] * len(episodes)
    return episodes


@pytest.mark.slow
def test_the_world_is_a_task_like_any_other(system: System[Any]) -> None:
    assert system.origin.generated and not system.origin.credentialed and system.task.question == QUESTION["question"]
    assert [len(part) for part in (system.cases.train, system.cases.valid, system.cases.test)] == [20, 4, 6]
    found = system.truth.upper_bounds(system.cases.test)
    assert found is not None and found["onset and trigger and slope and exculpating"] == pytest.approx(0.96)
    card = system.cases.test[0].reads.card
    assert card.factual == QUESTION["factual"] and card.meanings == ("no", "yes")


@pytest.mark.slow
def test_recall_grows_step_by_step_and_is_seen_in_what_prompts_show(system: System[Any], played: list[Episode]) -> None:
    onsets: list[float] = []
    for case, episode in zip(system.cases.test, played, strict=True):
        assert isinstance(episode.prediction, EventPrediction)
        gold, lookups = case.reads.gold, episode.prediction.lookups
        steps, whole = by_step(gold, lookups), recalls(gold, lookups)
        assert steps == sorted(steps) and steps[-1] == pytest.approx(sum(whole.values()) / len(whole))
        assert whole["slope"] == 1.0  # a trajectory shows all of them
        onsets.append(whole["onset"])
        row = system.report.row(episode, case, system.variant("scripted"))
        assert row["evidence"] == whole and row["evidence_by_step"] == steps
    assert sum(onsets) >= 4  # of six, found by early time or by name


def test_a_search_earns_what_it_was_the_first_to_find_and_costs(system: System[Any], played: list[Episode]) -> None:
    eta = load(["system=ehr_rag"]).reward.eta
    for case, episode in zip(system.cases.test, played, strict=True):
        reward, found = system.reward(episode, case), gains(episode, case.reads.gold)
        acts = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
        for one in found:
            assert one.turn is None or acts[one.turn].role in ("indicators", "refine")
        asked = [one for one in found if one.turn is not None]
        assert len(asked) == sum(act.role == "indicators" for act in acts) + sum(
            record.effect.role == "refine" and bool(record.result.value)
            for record in episode.trace if isinstance(record.effect, Act) and isinstance(record.result, Reply)
        )  # fmt: skip
        outcome = eta * reward.terms["orm"]
        recall = sum(one.recall for one in found)
        assert reward.terms["recall"] == pytest.approx(recall) and reward.terms["cost"] == -len(asked)
        assert reward.total == pytest.approx(outcome + 5.0 * recall - 0.1 * len(asked))
        assert reward.total == pytest.approx(sum(sum(turn.values()) for turn in reward.per_turn))


def test_the_ceiling_of_what_was_found_is_that_of_the_best_table_of_answers() -> None:
    """Directly, over all tables from findings to answers; who found all has the ceiling of the world."""
    rng = np.random.default_rng(0)
    switches = {i: (bool(a), bool(b), bool(c)) for i, (a, b, c) in enumerate(rng.random((60, 3)) < 0.5)}

    def row(patient: int, **found: float) -> dict[str, Any]:
        return {"subject_id": patient, "evidence": found}

    rows = [row(i, onset=1.0, trigger=float(i % 3 > 0), slope=0.4, exculpating=float(i % 2)) for i in switches]
    expected = 0.0
    for linked, ended in product((False, True), repeat=2):
        some = [critical(*switches[i]) for i in switches if (i % 3 > 0) == linked and bool(i % 2) == ended]
        expected += max(sum(some), sum(1 - p for p in some))
    assert compute_evidence_bound(switches, rows) == pytest.approx(expected / 60)
    all_found = [row(i, onset=1.0, slope=1.0, **({"trigger": 1.0} if a else {}), **({"exculpating": 1.0} if c else {}))
                 for i, (a, _, c) in switches.items()]  # fmt: skip
    assert compute_evidence_bound(switches, all_found) == pytest.approx(0.96)
    assert compute_evidence_bound(switches, [{"subject_id": 1}]) is None


def test_no_policy_sees_the_rows_that_tell(system: System[Any], played: list[Episode]) -> None:
    for case, episode in zip(system.cases.test, played, strict=True):
        for act in (record.effect for record in episode.trace if isinstance(record.effect, Act)):
            assert "gold" not in act.prompt and "truth" not in act.prompt
            assert all(why not in act.prompt for why in ("exculpating", "LongTruth"))
        assert "gold" not in repr(case)


@pytest.mark.slow
def test_a_meds_folder_with_labels_and_a_question_in_the_users_words(system: System[Any], cache: Path) -> None:
    """No truth lies there that anybody reads: no ceilings, no recall, the outcome alone."""
    root, folder = long_folder(cache, "demo_long_small", 0, 40), cache / "mine"
    for part in ("data", "metadata", "labels"):
        shutil.copytree(root / part, folder / part)
    shutil.copy(root / "visits.parquet", folder)
    words = {"question": "Does it get worse?", "labels": ["stays", "worsens"]}
    (folder / "labels" / "critical.json").write_text(json.dumps(words))
    mine = made("data=meds", "task=labels", f"data.root={folder}", f"data.cache={cache}")
    assert mine.task.question == words["question"] and mine.origin.credentialed
    assert mine.truth.upper_bounds(mine.cases.test) is None
    [episode, *_], case = play(mine, "scripted"), mine.cases.test[0]
    assert set(mine.reward(episode, case).terms) == {"orm"} and case.reads.card.meanings == ("stays", "worsens")
    assert "Does it get worse?" in system.cases.test[0].reads.card.description or "worse" in case.reads.card.description
    refused = {
        "{": "is no JSON",
        '{"labels": ["a", "b"]}': "has no question",
        '{"question": "?", "labels": ["a"]}': "two or more",
        '{"question": "?", "labels": ["a", "b"], "topic": "c"}': "'topic', which means nothing",
    }
    for text, message in refused.items():
        (folder / "labels" / "critical.json").write_text(text)
        with pytest.raises(BadInput, match=message):
            made("data=meds", "task=labels", f"data.root={folder}", f"data.cache={cache}")


@pytest.mark.slow
def test_what_does_not_go_together_is_refused(cache: Path) -> None:
    with pytest.raises(BadInput, match="choose task=labels"):
        load(["system=ehr_rag", "data=demo_long", "task=read"])
    with pytest.raises(BadInput, match="needs a file"):
        load(["system=ehr_rag", "data=demo", "task=labels"])
