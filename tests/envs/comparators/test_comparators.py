"""GHAR's comparators: what each method looks up and hands on, and that none needs the answer to be told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from ghar.config import Config
from ghar.envs.comparators.episode import Spec, parse_keywords, parse_search
from ghar.envs.comparators.system import METHODS, PRUNED, variants
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import System, build
from ghar.episode import Act, Completion, Retrieve
from ghar.llm.prompts import load_prompts


@pytest.fixture(scope="module")
def system(small_config: Callable[..., Config]) -> System[Any]:
    return build(Records(small_config("system=comparators", "task=los")))


class Says:
    """A policy that answers every role with the same words, and counts the roles it was asked."""

    def __init__(self, **words: str) -> None:
        self.words = words
        self.roles: list[str] = []

    def answer(self, acts: Any, seeds: Any) -> list[Completion]:
        self.roles += [act.role for act in acts]
        return [Completion(self.words.get(act.role, "3")) for act in acts]


def played(system: System[Any], config: Config, name: str, policy: Any, cases: int = 1) -> list[Any]:
    stage = stage_of(system, system.variants[name], config)
    return play(stage, system.cases.test[:cases], policy, seed=0, title="Test")


def looked_up(episode: Any) -> list[Retrieve]:
    return [record.effect for record in episode.trace if isinstance(record.effect, Retrieve)]


@pytest.mark.parametrize("name, words, roles, look_ups", [
    ("direct", {}, ["predict"], 0),
    ("cot", {"think": "it is grave"}, ["think", "predict"], 0),
    ("rag", {}, ["predict"], 1),
    ("pair", {"extract": "grave"}, ["extract", "predict"], 1),
    ("search_r1", {"search": "answer"}, ["search", "predict"], 0),
    ("search_r1", {"search": "search: drug x"}, ["search"] * 4 + ["predict"], 4),
    ("fixed_2", {"search": "answer"}, ["search"] * 2 + ["predict"], 2),
    ("fixed_3", {"search": "search: drug x"}, ["search"] * 3 + ["predict"], 3),
    ("lightrag", {"keywords": "entities: a; b | relations: protein"}, ["keywords", "predict"], 2),
    ("lightrag", {"keywords": "I do not know"}, ["keywords", "predict"], 1),
    ("pruned_rag", {"want": "no"}, ["want", "predict"], 0),
    ("pruned_medrag", {"want": "no"}, ["want", "predict"], 0),
    ("pruned_lightrag", {"want": "yes", "keywords": "entities: a"}, ["want", "keywords", "predict"], 1),
])  # fmt: skip
def test_who_is_asked_what_and_how_often(
    system: System[Any], small_config: Callable[..., Config], name: str, words: dict[str, str], roles: list[str],
    look_ups: int,
) -> None:  # fmt: skip
    policy = Says(**words)
    (episode,) = played(system, small_config("system=comparators", "task=los"), name, policy)
    assert policy.roles == roles and len(looked_up(episode)) == look_ups and episode.prediction.label == 3
    evidence = [step.answer for step in episode.prediction.history]
    last = [record.effect for record in episode.trace if isinstance(record.effect, Act)][-1]
    assert all(text in last.prompt for text in evidence)


def test_relations_are_asked_in_their_partitions_alone(
    system: System[Any], small_config: Callable[..., Config]
) -> None:
    policy = Says(keywords="entities: a | relations: protein")
    (episode,) = played(system, small_config("system=comparators", "task=los"), "lightrag", policy)
    low, high = looked_up(episode)
    assert low.partitions is None and high.partitions and high.query == "a; protein"


def test_what_several_conditions_are_told_is_no_difference(
    system: System[Any], small_config: Callable[..., Config]
) -> None:
    for episode in played(system, small_config("system=comparators", "task=los"), "medrag", Says(), cases=6):
        shown = [step.answer for step in episode.prediction.history]
        facts = [fact for text in shown for fact in text.split("; ") if fact != "nothing found"]
        assert len(facts) == len(set(facts))


def test_the_rule_answers_above_chance_where_it_searches(
    system: System[Any], small_config: Callable[..., Config]
) -> None:
    config = small_config("system=comparators", "task=los")
    cases = system.cases.test[:60]
    share = {}
    for name in ("rule_direct", "rule_search_r1"):
        episodes = played(system, config, name, system.fixed["rule"](), cases=60)
        share[name] = sum(e.prediction.label == c.label for e, c in zip(episodes, cases, strict=True)) / len(cases)
    assert share["rule_search_r1"] > share["rule_direct"]


def test_a_record_that_is_the_query_stands_in_a_full_prompt_once(small_config: Callable[..., Config]) -> None:
    config = small_config("system=comparators", "task=los", "env.prompts=full")
    system, policy = build(Records(config)), Says(extract="grave")
    for name in ("rag", "pair"):
        [episode] = played(system, config, name, policy)
        prompt = [record.effect.prompt for record in episode.trace if isinstance(record.effect, Act)][-1]
        assert prompt.count(system.cases.test[0].text) == 1 and "1. the text above\n   " in prompt


def test_replies_are_read() -> None:
    assert parse_search("I lack x.\nsearch: drug x").value == "drug x" and parse_search("answer").error is None
    assert parse_search("hm").error == "no_search" and parse_search(" ").error == "empty"
    assert parse_keywords("entities: a; b | relations: c").value == (("a", "b"), ("c",))
    assert parse_keywords("relations: c").value == ((), ("c",)) and parse_keywords("none").error == "no_keywords"


def test_the_trained_method_comes_first_and_all_are_there() -> None:
    found = variants("rag")
    assert next(iter(found)) == "rag" and {f"{p}{m}" for m in METHODS for p in ("", "base_", "rule_")} <= set(found)
    assert {f"pruned_{m}" for m in PRUNED} <= set(found)


@pytest.mark.parametrize("name", ["compact", "full"])
def test_prompts_have_no_holes(name: Any) -> None:
    load_prompts("ghar.envs.comparators", name, ("think", "want", "search", "keywords", "extract", "predict"))


@pytest.mark.parametrize(("words", "top_n", "shown"), [
    (None, 1, {"rag": (864, 36), "lightrag": (432, 18), "search_r1": (144, 6)}),  # a share of 864
    (48, 2, {"rag": (48, 2), "lightrag": (48, 2)}),  # the demo's
    (200, 1, {"rag": (200, 9), "medrag": (200, 9)}),  # one node and one edge stood for 200 words
    (10, 5, {"rag": (10, 5)}),
])  # fmt: skip
def test_a_look_up_asks_for_as_much_as_it_shows(
    words: int | None, top_n: int, shown: dict[str, tuple[int, int]]
) -> None:
    spec = Spec("full", 6, words, top_n)
    assert {name: (spec.words_of(cast(Any, name)), spec.passages_of(cast(Any, name))) for name in shown} == shown
