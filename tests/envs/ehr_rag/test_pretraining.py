"""The base model's exercises: other patients of the same story, whose replies can be read; brief prompts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghar.envs.ehr_rag.context import PromptContext, brief_row, brief_trajectory, rows_text
from ghar.envs.ehr_rag.pretraining import SHARES, RandomDecider, token_names
from ghar.envs.ehr_rag.rule import RuleReader
from ghar.envs.ehr_rag.rule_fit import EventRules, _beyond_rows
from ghar.envs.records import Records
from ghar.envs.system import DemoPretraining, PretrainingTasks, System, build
from ghar.episode import Act, Reply
from ghar.launch.entry import load

pytestmark = pytest.mark.slow

NAMES = {"a": "osprey disease", "b": "osprey exchange", "c": "merlin exchange", "d": "cough", "e": "graft"}
LINK = "* disease & * exchange"


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("practice")


@pytest.fixture(scope="module")
def system(cache: Path) -> System[Any]:
    return build(Records(load(["+experiment=ehr_rag_demo", "data.patients=30", f"data.cache={cache}"])))


@pytest.fixture(scope="module")
def exercises(system: System[Any]) -> PretrainingTasks:
    assert isinstance(system.training.pretraining, DemoPretraining)
    return system.training.pretraining.exercises(64, 0)


def rules() -> EventRules:
    """A pump of the disease's own kind speaks for, a graft against, a rising index for."""
    weights = {LINK: np.array([-1.0, 1.0]), "graft": np.array([2.0, -2.0]), "index rising": np.array([-1.0, 1.0])}
    cuts = {"index": (1.0, 2.0)}
    links, shared = {LINK: ("* disease", "* exchange")}, frozenset({"osprey", "merlin"})
    share = dict.fromkeys(weights, 0.5)
    return EventRules(np.zeros(2), weights, share, cuts, NAMES, links, shared,
                      frozenset({"graft"}))  # fmt: skip


def act(role: str, *codes: str, line: str = "", **facts: object) -> Act:
    rows = {i: (code, f"[2150-01-0{i} 00:00:00] long - {NAMES[code]}") for i, code in enumerate(codes, 1)}
    shown = PromptContext(rows, (("index", line),) if line else (), brief=True)
    about = {"shown": shown, "arguments": (), "asked": (), "path": "support", "keep": 1, **facts}
    return Act("top", role, "", facts=about)


def said(policy: RuleReader, one: Act, seed: int = 0) -> str:
    return policy.answer([one], [seed])[0].text


def test_the_patients_are_others_of_the_same_world(system: System[Any], exercises: PretrainingTasks) -> None:
    read = (*system.cases.train, *system.cases.test)
    own = {case.text + str(case.reads.prediction_time) for case in read}
    acts = [r.effect for episode in exercises.episodes for r in episode.trace if isinstance(r.effect, Act)]
    assert all(one.facts["case"].text + str(one.facts["case"].reads.prediction_time) not in own for one in acts)
    assert {one.role for one in acts} == set(SHARES) == set(exercises.shares) and sum(SHARES.values()) == 1


def test_every_reply_can_be_read(exercises: PretrainingTasks) -> None:
    replies = [r.result for episode in exercises.episodes for r in episode.trace if isinstance(r.effect, Act)]
    assert all(isinstance(reply, Reply) and reply.error in (None, "repeated") for reply in replies)
    assert all(reply.text.strip() for reply in replies)


def test_the_same_exercises_again(system: System[Any], exercises: PretrainingTasks) -> None:
    assert isinstance(system.training.pretraining, DemoPretraining)
    again = system.training.pretraining.exercises(64, 0)
    assert [one.prediction for one in again.episodes] == [one.prediction for one in exercises.episodes]
    assert again.names == exercises.names


def test_a_base_is_the_same_however_few_patients_a_run_plays(cache: Path, system: System[Any]) -> None:
    own = ["+experiment=ehr_rag_demo", "data.patients=30", f"data.cache={cache}"]
    fewer = build(Records(load([*own, "task.max_test=3"])))
    other = build(Records(load([*own, "system.rows=12"])))
    mine, same, changed = (one.training.pretraining for one in (system, fewer, other))
    assert isinstance(mine, DemoPretraining) and isinstance(same, DemoPretraining) and same.key == mine.key
    assert isinstance(changed, DemoPretraining) and changed.key != mine.key


def test_real_patients_have_no_practice(cache: Path) -> None:
    full = build(Records(load(["+experiment=ehr_rag_demo", "data.patients=30", f"data.cache={cache}",
                               "env.prompts=full"])))  # fmt: skip
    assert full.training.pretraining is None


def test_words_that_link_rows_are_tokens_and_their_names_are_spelled() -> None:
    assert token_names(rules(), NAMES) == ["osprey", "merlin", "index", "cough", "graft"]


def test_a_brief_prompt_says_the_same_in_fewer_words() -> None:
    assert brief_row("[2150-01-02 00:00:00] lab - Index (value: 3.5 mg)") == "Index 3.5 mg"
    assert brief_row("[2150-01-02 00:00:00] drug - Iron - oral (old)") == "Iron - oral (old)"
    line = "Index: [2150-01-02 00:00:00] 3.5 mg; [2150-01-03 00:00:00] 4.25 mg; [2150-01-04 00:00:00] 4"
    assert brief_trajectory("Index", line) == "Index up down 4"
    rows = [f"[2150-01-0{i} 00:00:00] drug - {name}" for i, name in enumerate("abacb", 1)]
    assert rows_text(rows, brief=True) == "a; c; b" and rows_text(rows, brief=False) == "\n".join(rows)


def test_the_rule_speaks_and_reads_briefly() -> None:
    rule = RuleReader(rules())
    rising = "index: [2150-01-01 00:00:00] 1; [2150-01-02 00:00:00] 2; [2150-01-03 00:00:00] 3"
    assert said(rule, act("indicators", names=["cough", "index"])) == "index"
    assert said(rule, act("support", "a", "b")) == "osprey disease; osprey exchange"
    assert said(rule, act("support", "d", line=rising)) == "index rising" and said(rule, act("support", "d")) == "weak"
    assert said(rule, act("oppose", "a", "b", "e")) == "graft"
    assert said(rule, act("weigh", "a", "b")) == "1" and said(rule, act("weigh", "a", "b", "e")) == "0"
    argued = act("weigh", "d", arguments=("index rising", "weak"))
    assert said(rule, argued) == "1" and said(rule, act("weigh", "d", arguments=("weak", "graft"))) == "0"
    assert said(rule, act("react", "a")) == "search: osprey exchange"
    assert said(rule, act("react", "a", "b", "e", asked=("osprey exchange",))) == "answer: 0"


def test_an_undecided_teacher_searches_by_chance_and_reads_as_the_rule_does() -> None:
    rule, teacher = RuleReader(rules()), RandomDecider(rules())
    replies = {said(teacher, act("refine", "a", "d"), seed) for seed in range(60)}
    assert replies == {"ENOUGH", "osprey exchange", "graft", "cough"}
    chosen = {said(teacher, act("indicators", names=["cough", "index"]), seed) for seed in range(20)}
    assert chosen == {"cough", "index"}
    for one in (act("weigh", "a", "b"), act("support", "a", "b"), act("oppose", "e")):
        assert {said(teacher, one, seed) for seed in range(5)} == {said(rule, one)}


def test_a_link_of_a_telling_row_with_a_usual_one_is_none() -> None:
    linked = [{"a & b": ("graft", "biopsy"), "c & d": ("osprey disease", "osprey exchange")}]
    told = {"a & b": 9.0, "c & d": 6.0}
    assert _beyond_rows(told, linked, {"graft": 9.0, "osprey exchange": 4.0}) == {"c & d"}
