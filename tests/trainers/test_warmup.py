"""Rejection sampling by a teacher: what is accepted, what it is compared with, what is trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envs.ghar.teacher import Knowledge, ScriptedTeacher
from envs.rollout import derive_seed
from ghar.episode import Act, Completion, Retrieve
from ghar.errors import BadInput
from ghar.llm.demo_model import build_tokenizer
from ghar.llm.policy import OppositePolicy
from rewards.terms import chain
from trainers.demo import TEACHER, teacher_knowledge
from trainers.play import episode_row, play, tokenised
from trainers.sft.warmup import Warmup, sample_references
from trainers.study import Study


@pytest.fixture(scope="module")
def cases(small_study):
    return small_study.cases(small_study.splits.train, None)


@pytest.fixture(scope="module")
def teacher(small_study, cases) -> ScriptedTeacher:
    return ScriptedTeacher(teacher_knowledge(small_study, cases), TEACHER)


@pytest.fixture(scope="module")
def warmup(small_study, cases, teacher) -> Warmup:
    return sample_references(small_study, cases, teacher)


def with_attempts(study: Study, attempts: int) -> Study:
    trainer = study.config.trainer
    trainer = replace(trainer, warmup=replace(trainer.warmup, attempts=attempts))
    return replace(study, config=replace(study.config, trainer=trainer))


def timeless(found: Warmup) -> Warmup:
    return replace(found, accepted=tuple(replace(e, seconds=0.0) for e in found.accepted))


def test_only_correct_episodes_are_accepted_one_a_sample(warmup, cases):
    labels = {case.sample_id: case.label for case in cases}
    assert all(e.prediction.label == labels[e.sample_id] and e.failure is None for e in warmup.accepted)
    assert len({e.sample_id for e in warmup.accepted}) == len(warmup.accepted) == round(60 * warmup.rate)
    assert {e.attempt for e in warmup.accepted} == {0, 1}  # a second attempt helps some


def test_references_are_of_accepted_samples_alone_and_tell_right_from_opposite(warmup, small_study, cases, teacher):
    accepted = {e.sample_id: e for e in warmup.accepted}
    assert set(warmup.references) == set(accepted)
    for sample, reference in warmup.references.items():
        assert reference.positive == chain(accepted[sample].prediction.history)
    by_sample = {case.sample_id: case for case in cases}
    for attempt in (0, 1):  # the opposite is of the attempt that was accepted: same draws, other decisions
        of_it = [by_sample[e.sample_id] for e in warmup.accepted if e.attempt == attempt]
        seed = small_study.config.seed
        opposite = play(small_study, of_it, OppositePolicy(teacher), seed=seed, title="", attempt=attempt)
        for case, other in zip(of_it, opposite, strict=True):
            assert warmup.references[case.sample_id].negative == chain(other.prediction.history)
            first, turned = accepted[case.sample_id].prediction.history[0], other.prediction.history[0]
            assert first.query == turned.query and first.retrieved != turned.retrieved
    assert sum(r.positive != r.negative for r in warmup.references.values()) > 0.9 * len(accepted)


def test_same_seed_same_warm_up(small_study, cases, teacher, warmup):
    assert timeless(sample_references(small_study, cases, teacher)) == timeless(warmup)


def test_the_samples_are_a_draw_of_the_seed_in_the_order_of_the_cases(small_study, cases, warmup):
    numbers = {case.sample_id: i for i, case in enumerate(cases)}
    for attempt in (0, 1):
        order = [numbers[e.sample_id] for e in warmup.accepted if e.attempt == attempt]
        assert order == sorted(order)
    assert derive_seed(0, "warmup") != derive_seed(1, "warmup")


def test_more_attempts_never_accept_less(small_study, cases, teacher, warmup):
    once = sample_references(with_attempts(small_study, 1), cases, teacher)
    assert once.rate < warmup.rate
    assert {e.sample_id for e in once.accepted} == {e.sample_id for e in warmup.accepted if e.attempt == 0}


def test_a_teacher_that_is_never_right_is_named(small_study, cases):
    class Silent:
        def answer(self, acts, seeds):
            return [Completion(act.choices[1] if act.choices else "hm") for act in acts]

    with pytest.raises(BadInput, match=r"trainer.warmup.teacher=scripted answered none of 60 samples"):
        sample_references(small_study, cases, Silent())


def test_failed_episodes_are_neither_accepted_nor_referred_to(small_study, cases, teacher, warmup):
    """Where retrieval breaks, only those who did not need it stay; an opposite that fails gives no reference."""

    class Broken:
        def retrieve(self, requests):
            raise ConnectionError("away")

    broken = with_attempts(replace(small_study, retriever=Broken()), 1)
    found = sample_references(broken, cases, teacher)
    assert found.accepted and all(e.failure is None for e in found.accepted)
    assert not any(isinstance(r.effect, Retrieve) for e in found.accepted for r in e.trace)
    assert not found.references  # the opposite of never looking up is to look up, which fails


def test_pairs_for_sft_are_what_was_asked_and_said(warmup):
    texts = [r.effect.prompt for e in warmup.accepted for r in e.trace if isinstance(r.effect, Act)]
    tokenizer = build_tokenizer(texts[:200], [], 600)
    for episode in warmup.accepted[:10]:
        acts = [r for r in episode.trace if isinstance(r.effect, Act)]
        pairs = tokenised(tokenizer, [episode])
        assert [role for role, _ in pairs] == [r.effect.role for r in acts] == [t.role for t in episode.turns]
        for (_, pair), record in zip(pairs, acts, strict=True):
            assert tokenizer.decode(pair.prompt_ids) == record.effect.prompt
            said = tokenizer.decode(pair.completion_ids, skip_special_tokens=True)
            assert said.strip() == record.result.text.strip()
            ends = pair.completion_ids[-1] == tokenizer.eos_token_id
            assert ends == (not record.effect.choices)  # a choice is complete by itself, as the engine samples it


def test_an_episodes_row_tells_every_turn(small_study, cases, warmup):
    from rewards.compose import score_episode

    by_sample = {case.sample_id: case for case in cases}
    for episode in warmup.accepted[:10]:
        case = by_sample[episode.sample_id]
        reward = score_episode(episode, case.label, small_study.rewards)
        row = episode_row(case, episode, reward, True, policy="scripted", split="train")
        assert row["correct"] and row["label"] == row["prediction"] and row["failure"] is None
        assert [t["role"] for t in row["turns"]] == [t.role for t in episode.turns]
        shown = [t["evidence"] for t in row["turns"] if t["role"] == "summarise"]
        assert shown == [s.evidence for s in episode.prediction.history if s.retrieved]
        assert row["retrieved"] == bool(shown) and row["iterations"] == len(episode.prediction.history)


def test_an_ignorant_teacher_still_plays_by_the_rules(small_study, cases):
    nobody = ScriptedTeacher(Knowledge({}, {}, lambda grade: grade), TEACHER)
    for episode in play(small_study, cases[:10], nobody, seed=1, title=""):
        assert episode.failure is None and episode.prediction.label is not None
