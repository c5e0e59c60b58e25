"""Rejection sampling by a teacher: what is accepted, what it is compared with, what is trained on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ghar.config import Config
from ghar.envs.ghar.pretraining import TEACHER, teacher_knowledge
from ghar.envs.ghar.teacher import Knowledge, ScriptedTeacher
from ghar.envs.play import play, stage_of, teacher_cases
from ghar.envs.rollout import derive_seed
from ghar.envs.system import System
from ghar.episode import Act, Completion, Retrieve
from ghar.errors import BadInput
from ghar.llm.demo_model import build_tokenizer
from ghar.llm.policy import OppositePolicy
from ghar.rewards.terms import chain
from ghar.trainers.sft.examples import read_examples
from ghar.trainers.sft.pairs import tokenised
from ghar.trainers.sft.warmup import WarmupResult, sample_references
from ghar.trainers.teacher import taught

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def config(small_records) -> Config:
    return small_records.config


@pytest.fixture(scope="module")
def cases(small_system):
    return small_system.cases.train


@pytest.fixture(scope="module")
def teacher(small_records) -> ScriptedTeacher:
    return ScriptedTeacher(teacher_knowledge(small_records), TEACHER)


@pytest.fixture(scope="module")
def warmup(small_system, config, teacher) -> WarmupResult:
    return sample_references(small_system, config, teacher, teacher_cases(small_system, config))


def main_stage(system: System[Any], config: Config):
    return stage_of(system, system.variants[system.main], config)


def with_attempts(config: Config, attempts: int) -> Config:
    trainer = config.trainer
    return replace(config, trainer=replace(trainer, warmup=replace(trainer.warmup, attempts=attempts)))


def texts_of(episodes) -> list[str]:
    return [r.effect.prompt for e in episodes for r in e.trace if isinstance(r.effect, Act)]


def timeless(found: WarmupResult) -> WarmupResult:
    return replace(found, accepted=tuple(replace(e, seconds=0.0) for e in found.accepted))


def test_only_correct_episodes_are_accepted_one_a_sample(warmup, cases):
    labels = {case.sample_id: case.label for case in cases}
    assert all(e.prediction.label == labels[e.sample_id] and e.failure is None for e in warmup.accepted)
    assert len({e.sample_id for e in warmup.accepted}) == len(warmup.accepted) == round(60 * warmup.rate)
    assert {e.attempt for e in warmup.accepted} == {0, 1}  # a second attempt helps some


def test_references_are_of_accepted_samples_alone_and_tell_right_from_opposite(
    warmup, small_system, config, cases, teacher
):
    accepted = {e.sample_id: e for e in warmup.accepted}
    assert set(warmup.references) == set(accepted)
    for sample, reference in warmup.references.items():
        assert reference.positive == chain(accepted[sample].prediction.history)
    by_sample = {case.sample_id: case for case in cases}
    for attempt in (0, 1):  # the opposite is of the attempt that was accepted: same draws, other decisions
        of_it = [by_sample[e.sample_id] for e in warmup.accepted if e.attempt == attempt]
        stage = main_stage(small_system, config)
        opposite = play(stage, of_it, OppositePolicy(teacher), seed=config.seed, title="", attempt=attempt)
        for case, other in zip(of_it, opposite, strict=True):
            assert warmup.references[case.sample_id].negative == chain(other.prediction.history)
            first, turned = accepted[case.sample_id].prediction.history[0], other.prediction.history[0]
            assert first.query == turned.query and first.retrieved != turned.retrieved
    alike = [accepted[sample] for sample, r in warmup.references.items() if r.positive == r.negative]
    assert len(alike) < 0.2 * len(accepted)
    known = teacher.knowledge.grades
    for episode in alike:  # the same is said where the textbook has the grade that is known, or nothing was found
        assert all(s.query in known or s.answer.endswith("unknown") for s in episode.prediction.history)


def test_same_seed_same_warm_up(small_system, config, teacher, warmup):
    again = sample_references(small_system, config, teacher, teacher_cases(small_system, config))
    assert timeless(again) == timeless(warmup)


def test_what_is_rehearsed_stands_behind_the_examples_and_counts_as_no_sample(
    small_system, config, teacher, warmup, tmp_path
):
    never, always = [v for v in small_system.variants.values() if v.who == "trained"][1:3]
    training = replace(small_system.training, rehearsal={never.name: 0.5, always.name: 1.0})
    system = replace(small_system, training=training)
    found = sample_references(system, config, teacher, teacher_cases(system, config))
    assert timeless(replace(found, rehearsed=())) == timeless(warmup)
    labels = {case.sample_id: case.label for case in teacher_cases(system, config)}
    first, second = found.rehearsed
    assert all(e.prediction.label == labels[e.sample_id] for e in (*first, *second)) and 0 < len(first) < len(second)
    tokenizer = build_tokenizer(texts_of(warmup.accepted[:9]), [], 600)
    taught(system, config, None, tokenizer, tmp_path / "a" / "lessons.npz")
    few = replace(config, env=replace(config.env, in_flight=16))
    taught(system, few, None, tokenizer, tmp_path / "b" / "lessons.npz")
    whole, parts = (read_examples(tmp_path / name / "lessons.npz") for name in "ab")
    pairs = [pair for _, pair in tokenised(tokenizer, [*found.accepted, *first, *second])]
    assert whole == parts and whole.train == pairs and whole.references == warmup.references
    assert whole.about["samples answered rightly by the teacher"] == f"{warmup.rate:.1%}"


def test_the_samples_are_a_draw_of_the_seed_in_the_order_of_the_cases(cases, warmup):
    numbers = {case.sample_id: i for i, case in enumerate(cases)}
    for attempt in (0, 1):
        order = [numbers[e.sample_id] for e in warmup.accepted if e.attempt == attempt]
        assert order == sorted(order)
    assert derive_seed(0, "warmup") != derive_seed(1, "warmup")


def test_more_attempts_never_accept_less(small_system, config, teacher, warmup):
    once = sample_references(small_system, with_attempts(config, 1), teacher, teacher_cases(small_system, config))
    assert once.rate < warmup.rate
    assert {e.sample_id for e in once.accepted} == {e.sample_id for e in warmup.accepted if e.attempt == 0}


def test_a_teacher_that_is_never_right_is_named(small_system, config, tmp_path, monkeypatch):
    class Silent:
        def answer(self, acts, seeds):
            return [Completion(act.choices[1] if act.choices else "hm") for act in acts]

    mute = replace(small_system, fixed={**small_system.fixed, small_system.training.teacher: Silent})
    with pytest.raises(BadInput, match=r"trainer.warmup.teacher=scripted answered none of 60 samples"):
        taught(mute, config, None, build_tokenizer(["word"], [], 300), tmp_path / "lessons.npz")


def test_examples_do_not_depend_on_a_kill_or_on_the_parts(
    small_system, config, tmp_path, teacher, warmup, monkeypatch
):
    """Every kept part is used and none is asked for again; the order is that of asking all at once."""
    monkeypatch.setattr("ghar.trainers.sharding.FILLED", 1)  # parts of 16, so that there are several
    tokenizer = build_tokenizer(texts_of(warmup.accepted[:9]), [], 600)
    few = replace(config, env=replace(config.env, in_flight=16))
    asked: list[int] = []

    class Counting:
        def __init__(self, limit):
            self.limit = limit

        def answer(self, acts, seeds):
            asked.append(len(acts))
            if len(asked) > self.limit:
                raise KeyboardInterrupt
            return teacher.answer(acts, seeds)

    def teach(name, own, limit=10**9):
        asked.clear()
        counting = {small_system.training.teacher: lambda: Counting(limit)}
        system = replace(small_system, fixed={**small_system.fixed, **counting})
        taught(system, own, None, tokenizer, tmp_path / name / "lessons.npz")
        return read_examples(tmp_path / name / "lessons.npz"), len(asked)

    whole, calls = teach("whole", few)
    at_once, _ = teach("at_once", config)
    with pytest.raises(KeyboardInterrupt):
        teach("killed", few, limit=calls // 2)
    left = len(list((tmp_path / "killed" / "lessons-parts").glob("*.jsonl")))
    again, fewer = teach("killed", few)
    assert 0 < left < 4 and fewer < calls
    assert again == whole == at_once
    assert whole.train == [pair for _, pair in tokenised(tokenizer, warmup.accepted)]
    assert whole.references == warmup.references
    assert [path.name for path in (tmp_path / "killed").iterdir()] == ["lessons.npz"]


def test_failed_episodes_are_neither_accepted_nor_referred_to(small_system, config, teacher):
    """Where retrieval breaks, only those who did not need it stay; an opposite that fails gives no reference."""

    class Broken:
        def retrieve(self, requests):
            raise ConnectionError("away")

    broken = replace(small_system, corpus=Broken())
    found = sample_references(broken, with_attempts(config, 1), teacher, teacher_cases(broken, config))
    assert found.accepted and all(e.failure is None for e in found.accepted)
    assert not any(isinstance(r.effect, Retrieve) for e in found.accepted for r in e.trace)
    assert not found.references  # the opposite of never looking up is to look up, which fails


def test_pairs_for_sft_are_what_was_asked_and_said(warmup):
    tokenizer = build_tokenizer(texts_of(warmup.accepted)[:200], [], 600)
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


def test_an_ignorant_teacher_still_plays_by_the_rules(small_system, config, cases):
    nobody = ScriptedTeacher(Knowledge({}, {}, lambda grade: grade), TEACHER)
    for episode in play(main_stage(small_system, config), cases[:10], nobody, seed=1, title=""):
        assert episode.failure is None and episode.prediction.label is not None
