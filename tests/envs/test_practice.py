"""The demo's base model: what its teacher may know, and that its exercises tell nothing about rare entities."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
import torch

from envs.ghar.teacher import ScriptedTeacher, grades_in
from ghar.data.demo import story
from ghar.episode import Act, Evidence, Passage, Retrieve
from ghar.errors import BadInput
from ghar.llm.hf import HFEngine
from ghar.llm.models import load_pretrained
from ghar.llm.policy import EnginePolicy
from ghar.llm.tokens import encode_prompt
from trainers.demo import (
    UNDECIDED,
    RedrawnGrades,
    base_knowledge,
    build_base,
    made_up_samples,
    teacher_knowledge,
    topic_of,
)
from trainers.play import play
from trainers.runs.models import SFT, load_sft, save_model

COUNT = 300


@pytest.fixture(scope="module")
def knowledge(small_study):
    return teacher_knowledge(small_study, [])


def exercises(study, knowledge, corpus, seed: int = 5):
    samples, names = made_up_samples(study, knowledge, COUNT, seed)
    world = replace(study, names=names | dict(study.names))
    return play(
        world, world.cases(samples, None), ScriptedTeacher(knowledge, UNDECIDED), seed=seed, corpus=corpus, title=""
    )


@pytest.fixture(scope="module")
def episodes(small_study, knowledge):
    return exercises(small_study, knowledge, RedrawnGrades(small_study.retriever, 9))


def rare_topics(study) -> dict[str, int]:
    world = study.world
    return {
        topic_of(code, study.names[code]): world.severity[code]
        for code, tier in world.tier.items()
        if tier == "rare" and code in study.names
    }


@dataclass(frozen=True)
class OtherGraph:
    """The corpus of a world in which every grade is another one."""

    inner: Any

    def retrieve(self, requests):
        def changed(text: str) -> str:
            return re.sub(r"grade (\d) course", lambda m: f"grade {(int(m[1]) + 3) % 10} course", text)

        return [
            Evidence(tuple(replace(p, text=changed(p.text)) for p in evidence.passages))
            for evidence in self.inner.retrieve(requests)
        ]


# ---------------------------------------------------------------- the teacher


def test_the_teacher_knows_common_topics_nearly_right_and_no_rare_one(small_study, knowledge):
    rare = rare_topics(small_study)
    assert rare and not set(rare) & set(knowledge.grades) and knowledge.doubted <= set(knowledge.grades)
    world = small_study.world
    common = {
        topic_of(code, small_study.names[code]): world.severity[code]
        for code, tier in world.tier.items()
        if tier == "common" and code in small_study.names
    }
    assert set(common) == set(knowledge.grades)
    wrong = [topic for topic, grade in common.items() if knowledge.grades[topic] != grade]
    assert len(wrong) < 0.12 * len(common)


def test_the_base_model_is_given_no_errors(small_study, knowledge):
    found, world = base_knowledge(small_study, []), small_study.world
    truth = {topic_of(c, small_study.names[c]): s for c, s in world.severity.items() if c in small_study.names}
    assert found.grades.keys() == knowledge.grades.keys()
    assert all(grade == truth[topic] for topic, grade in found.grades.items())


def test_rare_severities_do_not_reach_the_teacher(small_study, knowledge):
    world = small_study.world
    other = {c: (s + 4) % 10 if world.tier[c] == "rare" else s for c, s in world.severity.items()}
    again = teacher_knowledge(replace(small_study, world=replace(world, severity=other)), [])
    assert (again.grades, again.doubted) == (knowledge.grades, knowledge.doubted)


@pytest.mark.parametrize("task, threshold", [("dec", story.DEATH_FROM_ACUITY), ("read", story.READ_FROM_ACUITY)])
def test_labels_of_the_other_tasks(small_study, task, threshold):
    config = replace(small_study.config, task=replace(small_study.config.task, name=task))
    found = teacher_knowledge(replace(small_study, config=config), []).label_of
    assert [found(grade) for grade in range(10)] == [int(grade >= threshold) for grade in range(10)]


def test_for_real_patients_it_knows_mean_labels_of_topics_seen_often(small_study):
    cases = small_study.cases(small_study.splits.train, None)
    found = teacher_knowledge(replace(small_study, world=None), cases)
    labels: dict[str, list[int]] = {}
    for case in cases:
        for topic in case.topics:
            labels.setdefault(topic, []).append(case.label)
    assert set(found.grades) == {topic for topic, seen in labels.items() if len(seen) >= 8}
    assert all(grade == round(float(np.mean(labels[t]))) for t, grade in found.grades.items())  # LOS: label = grade
    assert found.label_of(0) == 0 and found.label_of(9) == 9


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


def test_the_exercises_are_the_same_whatever_grades_the_graph_states(small_study, knowledge, episodes):
    """Nothing about a severity can be learned from what does not depend on it."""
    other = exercises(small_study, knowledge, RedrawnGrades(OtherGraph(small_study.retriever), 9))
    assert [e.trace for e in other] == [e.trace for e in episodes]
    assert [e.prediction for e in other] == [e.prediction for e in episodes]


def test_true_grades_of_rare_topics_are_said_by_chance_alone(small_study, episodes):
    rare = rare_topics(small_study)
    hits = []
    for episode in episodes:
        for step in episode.prediction.history:
            if step.query in rare:
                assert step.retrieved or not grades_in(step.answer)  # from memory it is unknown
                hits += [g == rare[step.query] for g in grades_in(step.answer)]
    assert len(hits) >= 30 and np.mean(hits) < 0.25


def test_made_up_patients_have_known_and_other_topics_and_no_outcome(small_study, knowledge):
    samples, names = made_up_samples(small_study, knowledge, COUNT, 5)
    again = made_up_samples(small_study, knowledge, COUNT, 5)
    assert (samples, names) == again and made_up_samples(small_study, knowledge, COUNT, 6)[0] != samples
    assert {s.label for s in samples} == {0} and len({s.sample_id for s in samples}) == COUNT
    assert not {s.sample_id for s in samples} & {s.sample_id for s in small_study.splits.train}
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


# ---------------------------------------------------------------- the model


def tiny(study, steps: int):
    config, trainer = study.config, study.config.trainer
    model = replace(config.model, hidden=32, layers=2, heads=2, vocab=1600)
    base = replace(trainer.base, steps=steps, batch=16)
    return replace(study, config=replace(config, model=model, trainer=replace(trainer, base=base)))


@pytest.fixture(scope="module")
def base(small_study, knowledge):
    rows: list[dict] = []
    model, tokenizer = build_base(tiny(small_study, 0), knowledge, rows.append)
    return model, tokenizer, rows


def test_without_steps_the_base_is_untrained_but_can_be_asked(small_study, base):
    model, tokenizer, rows = base
    assert not rows and model.config.vocab_size == len(tokenizer) <= 1600
    cases = small_study.cases(small_study.splits.valid[:3], tokenizer)
    policy = EnginePolicy(HFEngine(model, tokenizer))
    for episode in play(small_study, cases, policy, seed=1, title=""):
        assert episode.failure is None and all(t.trainable for t in episode.turns)


def test_grades_and_known_topics_are_single_tokens(base, knowledge):
    _, tokenizer, _ = base
    for text in (*(f"grade {g} course" for g in range(10)), *(t.split(" ", 1)[1] for t in list(knowledge.grades)[:20])):
        assert len(encode_prompt(tokenizer, " " + text)) == 1, text


def test_the_warmed_up_policy_comes_back_from_disk(base, small_study, tmp_path):
    model, tokenizer, _ = base
    save_model(model, tokenizer, tmp_path / SFT)
    save_model(model, tokenizer, tmp_path / SFT)  # a second time changes nothing
    assert [path.name for path in tmp_path.iterdir()] == ["sft"]
    again, words = load_sft(small_study.config, tmp_path)
    case = small_study.cases(small_study.splits.valid[:1], tokenizer)[0]
    ids = encode_prompt(tokenizer, f"predict los\n{case.text}\nanswer:")
    assert encode_prompt(words, f"predict los\n{case.text}\nanswer:") == ids
    with torch.inference_mode():
        batch = torch.tensor([ids])
        assert torch.equal(again(input_ids=batch).logits, model(input_ids=batch).logits)


def test_a_model_that_is_not_there_is_named(small_study, tmp_path):
    with pytest.raises(BadInput, match="holds no model"):
        load_sft(small_study.config, tmp_path)
    with pytest.raises(BadInput, match=r"model.path=.*nothing cannot be loaded"):
        load_pretrained(str(tmp_path / "nothing"), "float32")
