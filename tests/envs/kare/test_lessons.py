"""Distillation: what is taught after which prefix, what a pair weighs, and a start for MAPPO that it leaves behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from envs.kare.episode import KareCase, KareEpisodes, KareSpec, both_prompt, label_prompt, parse_both, reason_prompt
from envs.rollout import Job, rollout
from ghar.data.cohort import Task
from ghar.episode import Evidence, Passage, Retrieve
from ghar.llm.demo_model import build_model, build_tokenizer
from ghar.llm.hf import HFEngine
from ghar.llm.models import load_pretrained
from ghar.llm.policy import EnginePolicy
from ghar.llm.tokens import encode_choices, encode_prompt
from launch.entry import load
from rewards.outcome import score_outcome
from trainers.expert_chains import Chain
from trainers.rl.mappo import update
from trainers.rl.trajectory import build
from trainers.runs.models import make_actor, mappo_config, save_model
from trainers.sft.distill import Taught, answers_of, class_weights, distil, lessons, look_up_all

TASK = Task("read", "Will this patient come back?", ("no", "yes"))
NAMES = ("asthma", "gout", "mumps", "rickets")
GRADES: dict[str, int] = dict(zip(NAMES, (2, 7, 3, 9), strict=True))
CONFIG = load(["policy=kare"])


def case(number: int, name: str) -> KareCase:
    topic = f"disease {name}"
    return KareCase(f"s{number}", number, number, f"now: {topic}", "", (topic,), TASK, int(GRADES[name] > 4))


CASES = tuple(case(i, NAMES[(i * i + i // 3) % 4]) for i in range(24))


def knowledge_of(one: KareCase) -> str:
    name = one.topics[0].split(" ", 1)[1]
    return f"- {name} has a grade {GRADES[name]} course"


TAUGHT = Taught(
    CASES,
    {one.sample_id: knowledge_of(one) for one in CASES},
    {one.sample_id: Chain(f"so {one.topics[0]} decides", 0) for one in CASES[1:]},  # the first has none
)


@cache
def tokenizer() -> Any:
    texts = [reason_prompt(one, knowledge_of(one), "compact") for one in CASES] + ["so disease decides answer: yes no"]
    return build_tokenizer(texts * 3, [*NAMES, "yes", "no"], 400)


def words(ids: Sequence[int]) -> str:
    return tokenizer().decode(list(ids)).strip()


def test_the_same_context_is_followed_by_what_its_prefix_asks_for():
    pairs = lessons(tokenizer(), TAUGHT, "multitask", "compact")
    assert len(pairs) == 23 + 24
    reasons, labels = pairs[:23], pairs[23:]
    for one, pair in zip(CASES[1:], reasons, strict=True):
        assert pair.prompt_ids == encode_prompt(tokenizer(), reason_prompt(one, knowledge_of(one), "compact"))
        assert words(pair.completion_ids[:-1]) == TAUGHT.chains[one.sample_id].text
        assert pair.completion_ids[-1] == tokenizer().eos_token_id
        assert words(pair.prompt_ids).startswith("[Reasoning]")
    for one, pair in zip(CASES, labels, strict=True):
        assert pair.prompt_ids == encode_prompt(tokenizer(), label_prompt(one, knowledge_of(one), "compact"))
        assert pair.completion_ids == encode_choices(tokenizer(), TASK.labels)[one.label]
        assert words(pair.prompt_ids).startswith("[Label Prediction]")


def test_a_chain_counts_as_much_as_a_label():
    for pair in lessons(tokenizer(), TAUGHT, "multitask", "compact"):
        assert pair.weight is not None and pair.weight * len(pair.completion_ids) == pytest.approx(1)


@given(st.lists(st.sampled_from(NAMES), min_size=1, max_size=30))
def test_weighted_classes_count_the_same_together(names):
    cases = [case(i, name) for i, name in enumerate(names)]
    taught = Taught(cases, dict.fromkeys((one.sample_id for one in cases), ""), {cases[0].sample_id: Chain("a b c", 0)})
    pairs = lessons(tokenizer(), taught, "multitask_weighted", "compact")[1:]
    total: dict[int, float] = {}
    for one, pair in zip(cases, pairs, strict=True):
        total[one.label] = total.get(one.label, 0) + (pair.weight or 0) * len(pair.completion_ids)
    assert list(total.values()) == pytest.approx([len(cases) / len(total)] * len(total))
    assert class_weights(cases)[cases[0].label] * sum(one.label == cases[0].label for one in cases) == pytest.approx(
        len(cases) / len(total)
    )


def test_the_ablations_teach_their_part_alone():
    both = lessons(tokenizer(), TAUGHT, "two_in_one", "compact")
    assert len(both) == 23  # without a chain there is nothing to join
    for one, pair in zip(CASES[1:], both, strict=True):
        assert pair.prompt_ids == encode_prompt(tokenizer(), both_prompt(one, knowledge_of(one), "compact"))
        assert parse_both(words(pair.completion_ids[:-1]), TASK).value == one.label
    labels = lessons(tokenizer(), TAUGHT, "label_only", "compact")
    assert labels == lessons(tokenizer(), TAUGHT, "multitask", "compact")[23:]
    for tasks in ("multitask", "multitask_weighted", "label_only"):
        assert answers_of(tokenizer(), TAUGHT, tasks, "compact") == labels
    assert answers_of(tokenizer(), TAUGHT, "two_in_one", "compact") == both


class Communities:
    """Finds the grade of the patient's disease."""

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        found = [f"{request.query} has a grade {GRADES[request.query]} course" for request in requests]
        return [Evidence((Passage(text, "community", -1, 1.0, 0),)) for text in found]


def look_up(one: KareCase) -> Retrieve:
    return Retrieve(one.topics[0].split(" ", 1)[1], None, 1)


def count(text: str) -> int:
    return len(text.split())


def test_training_sees_the_knowledge_that_an_episode_would():
    assert look_up_all(CASES, look_up, Communities(), 50, count) == TAUGHT.knowledge
    assert set(look_up_all(CASES, lambda _: None, Communities(), 50, count).values()) == {""}
    assert set(look_up_all(CASES, look_up, Communities(), 3, count).values()) == {""}  # over the budget


@pytest.fixture(scope="module")
def distilled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model distilled on the cases above, saved as a plain folder."""
    warmup = replace(CONFIG.trainer.warmup, epochs=20, batch=16, micro_batch=16, lr=5e-3)
    config = replace(CONFIG, trainer=replace(CONFIG.trainer, warmup=warmup))
    model = build_model(tokenizer(), hidden=64, layers=2, heads=2, seed=0)
    pairs = lessons(tokenizer(), TAUGHT, "multitask", "compact")
    result = distil(config, model, tokenizer(), pairs, answers_of(tokenizer(), TAUGHT, "multitask", "compact"), None)
    losses = [row["valid_loss"] for row in result.curve]
    assert len(losses) >= 3 * 20 - 5 and min(losses) < 0.5 * losses[0]
    folder = tmp_path_factory.mktemp("distilled") / "model"
    save_model(result.model, tokenizer(), folder)
    return folder


def play(engine: HFEngine, temperature: float) -> list[Any]:
    episodes = KareEpisodes(KareSpec("compact", "beside", 50), look_up, count)
    jobs = [Job(one.sample_id, 0, lambda one=one: episodes.episode(one)) for one in CASES]
    return rollout(jobs, {"top": EnginePolicy(engine, temperature)}, Communities(), seed=0, in_flight=8, steady=True)


def test_what_was_distilled_reasons_and_predicts(distilled):
    played = play(HFEngine(*load_pretrained(str(distilled), "float32")), 0)
    assert sum(e.prediction.label == one.label for e, one in zip(played, CASES, strict=True)) >= 22
    assert all(e.prediction.chain.startswith("so disease ") for e in played)


@pytest.mark.parametrize("finetune", ["full", "lora"])
def test_mappo_starts_from_what_was_distilled(distilled, finetune):
    """One update on sampled episodes: the trainer's log-probs are the engine's, and weights move."""
    config = replace(CONFIG, model=replace(CONFIG.model, kind="pretrained", path=str(distilled), finetune=finetune))
    model, words = load_pretrained(str(distilled), "float32")
    engine = HFEngine(model, words)
    actor = make_actor(config, model)
    with actor.merged() as merged:
        engine.sync(merged, 0)
        episodes = play(engine, config.engine.temperature)
    rewards = [score_outcome(e, one.label, 1.0) for e, one in zip(episodes, CASES, strict=True)]
    before = {name: weight.clone() for name, weight in actor.trainable_state().items()}
    optimizer = torch.optim.AdamW(actor.parameter_groups(1e-3, 1e-2), weight_decay=0.0)
    traj = build(episodes, rewards, ("top",), ("reason", "predict", "both"))
    report = update(actor, optimizer, traj, mappo_config(config), np.random.default_rng(0), lambda *_: None, 0)
    assert report["ratio/first"] == pytest.approx(1, abs=1e-3)
    assert any(not torch.equal(weight, before[name]) for name, weight in actor.trainable_state().items())
