"""What the demo's base model is made from: what its teacher may know, and that its exercises tell nothing about rare
entities."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest

from ghar.envs.case import topics_of
from ghar.envs.ghar.pretraining import RedrawnGrades, base_knowledge, made_up_samples, practice, teacher_knowledge
from ghar.envs.ghar.teacher import grades_in
from ghar.envs.records import Records
from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity_grades import topic_of
from ghar.episode import Act, Evidence, Passage, Retrieve

COUNT = 300
TOTAL = 3334  # exercises: as many of the rarest kind as COUNT made-up patients give


@pytest.fixture(scope="module")
def knowledge(small_records):
    return teacher_knowledge(small_records)


def changed(records: Records, **values: Any) -> Records:
    """The same records with other ones in place of what was read."""
    other = Records(values.pop("config", records.config))
    vars(other).update({**vars(records), "config": other.config, **values})
    return other


def exercises(records, system, corpus, seed: int = 5):
    episodes = system.variants[system.main].spec
    return practice(records, episodes, corpus).exercises(TOTAL, seed).episodes


@pytest.fixture(scope="module")
def episodes(small_records, small_system):
    return exercises(small_records, small_system, small_system.corpus)


def rare_topics(records) -> dict[str, int]:
    """Sub-query -> grade, of all conditions of the tail and of the targets of its drugs."""
    table = pl.read_csv(records.world.root / "entities.csv").filter(tier="rare")
    direct = table.filter(pl.col("target").is_null()).select("name", "severity").iter_rows()
    behind = table.drop_nulls("target").select("target", "severity").iter_rows()
    return {f"disease {name}": grade for name, grade in direct} | {f"gene {name}": grade for name, grade in behind}


@dataclass(frozen=True)
class OtherGraph:
    """The corpus of a world in which every grade is another one."""

    inner: Any

    def retrieve(self, requests):
        def other(text: str) -> str:
            return re.sub(r"grade (\d) course", lambda m: f"grade {(int(m[1]) + 3) % 10} course", text)

        return [
            Evidence(tuple(replace(p, text=other(p.text)) for p in evidence.passages))
            for evidence in self.inner.retrieve(requests)
        ]


# ---------------------------------------------------------------- the teacher


def test_the_teacher_knows_common_topics_nearly_right_and_no_rare_one(small_records, knowledge):
    rare = rare_topics(small_records)
    assert rare and not set(rare) & set(knowledge.grades) and knowledge.doubted <= set(knowledge.grades)
    world = small_records.world
    common = {
        topic_of(code, small_records.names[code]): world.severity[code]
        for code, tier in world.tier.items()
        if tier == "common" and code in small_records.names
    }
    assert set(common) == set(knowledge.grades)
    wrong = [topic for topic, grade in common.items() if knowledge.grades[topic] != grade]
    assert len(wrong) < 0.12 * len(common)


def test_the_base_model_is_given_no_errors(small_records, knowledge):
    found, world = base_knowledge(small_records), small_records.world
    truth = {topic_of(c, small_records.names[c]): s for c, s in world.severity.items() if c in small_records.names}
    assert found.grades.keys() == knowledge.grades.keys()
    assert all(grade == truth[topic] for topic, grade in found.grades.items())


def test_rare_severities_do_not_reach_the_teacher(small_records, knowledge):
    world = small_records.world
    other = {c: (s + 4) % 10 if world.tier[c] == "rare" else s for c, s in world.severity.items()}
    again = teacher_knowledge(changed(small_records, world=replace(world, severity=other)))
    assert (again.grades, again.doubted) == (knowledge.grades, knowledge.doubted)


@pytest.mark.parametrize("task, threshold", [("dec", story.DEATH_FROM_ACUITY), ("read", story.READ_FROM_ACUITY)])
def test_labels_of_the_other_tasks(small_records, task, threshold):
    config = replace(small_records.config, task=replace(small_records.config.task, name=task))
    found = teacher_knowledge(changed(small_records, config=config)).label_of
    assert [found(grade) for grade in range(10)] == [int(grade >= threshold) for grade in range(10)]


# ---------------------------------------------------------------- exercises


def test_a_redrawn_grade_depends_on_seed_query_and_passage_but_not_on_the_grade():
    class Plain:
        def retrieve(self, requests):
            return [
                Evidence((Passage(f"{r.query} - sign - grade {r.top_n} course", "edge", 0, 0.5, 7),)) for r in requests
            ]

    def shown(seed: int, query: str, grade: int) -> Passage:
        (evidence,) = RedrawnGrades(Plain(), seed).retrieve([Retrieve(query, None, grade)])
        return evidence.passages[0]

    assert len({shown(1, "gout", grade) for grade in range(10)}) == 1
    passage = shown(1, "gout", 4)
    assert (passage.kind, passage.partition, passage.score, passage.ident) == ("edge", 0, 0.5, 7)
    assert re.fullmatch(r"gout - sign - grade \d course", passage.text)
    counts = np.bincount([grades_in(shown(seed, "gout", 4).text)[0] for seed in range(500)], minlength=10)
    assert counts.min() > 25 and counts.max() < 80  # uniform over the ten


@pytest.mark.slow
def test_the_exercises_are_the_same_whatever_grades_the_graph_states(small_records, small_system, episodes):
    """Nothing about a severity can be learned from what does not depend on it."""
    other = exercises(small_records, small_system, OtherGraph(small_system.corpus))
    assert [e.trace for e in other] == [e.trace for e in episodes]
    assert [e.prediction for e in other] == [e.prediction for e in episodes]


def test_true_grades_of_rare_topics_are_said_by_chance_alone(small_records, episodes):
    rare = rare_topics(small_records)
    hits = []
    for episode in episodes:
        for step in episode.prediction.history:
            if step.query in rare:
                assert step.retrieved or not grades_in(step.answer)  # from memory it is unknown
                hits += [g == rare[step.query] for g in grades_in(step.answer)]
    assert len(hits) >= 30 and np.mean(hits) < 0.25


def test_no_patient_has_an_entity_of_the_tail_that_the_base_has_practised_on(small_records, episodes):
    practised = {step.query for e in episodes for step in e.prediction.history} & set(rare_topics(small_records))
    world, splits = small_records.world, small_records.splits
    cases = [*splits.train, *splits.valid, *splits.test]
    shown = {topic for case in cases for topic in topics_of(case, small_records.name_of)}
    shown |= {f"gene {world.target[code]}" for code in world.target if code in small_records.names}
    assert len(practised) > 30 and len(shown) > 100 and not practised & shown


def test_made_up_patients_have_known_and_other_topics_and_no_outcome(small_records, knowledge):
    samples, names = made_up_samples(small_records, knowledge, COUNT, 5)
    again = made_up_samples(small_records, knowledge, COUNT, 5)
    assert (samples, names) == again and made_up_samples(small_records, knowledge, COUNT, 6)[0] != samples
    assert {s.label for s in samples} == {0} and len({s.sample_id for s in samples}) == COUNT
    assert not {s.sample_id for s in samples} & {s.sample_id for s in small_records.splits.train}
    kinds = []
    for sample in samples:
        newest = sample.history[-1]
        topics = [topic_of(c, names[c]) for c in (*newest.diagnoses, *newest.medications)]
        assert len(set(topics)) == len(topics) and newest.diagnoses and newest.medications
        kinds.append(sum(t not in knowledge.grades for t in topics))
    assert np.bincount(kinds, minlength=3) / COUNT == pytest.approx([0.4, 0.4, 0.2], abs=0.12)


def test_exercises_practise_every_decision(episodes):
    roles = {r.effect.role for e in episodes for r in e.trace if isinstance(r.effect, Act)}
    assert roles == {"rewrite", "retrieve", "metapaths", "summarise", "answer", "continue", "followup", "predict"}
    assert all(e.failure is None and e.prediction.label is not None for e in episodes)
