"""Every source asked, and a router: what they decide, what the agent still decides, and what it is charged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.envs.case import Case
from ghar.envs.ghar.episode import GharEpisodes, Groups
from ghar.envs.ghar.joined_sources import MenuPart
from ghar.envs.ghar.routing import EverySource, asked_rightly, by_source, fit_router
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.episode import Act, Completion, Episode, Prediction, ReasoningStep, RetrieveFor, Turn
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.rewards.compose import RewardSpec, score_episode
from ghar.trainers.evaluation.evaluate import evaluate
from tests.envs.parts import TASK, drive, make_case, make_episodes

SOURCES = ("graph", "graph", "past", "reports")
MENU = tuple(MenuPart(i, f"rel_{i}", f"line {i}", source) for i, source in enumerate(SOURCES))
SPEC = RewardSpec(5.0, 0.2, 3, "range", "sound", "shared", max_iterations=4, max_paths=3, prices=(0.1, 0.2, 0.4, 0.8))


def episodes(groups: Groups) -> GharEpisodes[MenuPart]:
    return GharEpisodes(make_episodes().spec, MENU, EverySource(groups))


def run(generator: Any, metapaths: list[str]) -> tuple[list[Any], Prediction]:
    """Two sub-queries, then enough; the n-th choice of a line is answered as listed."""
    said = iter(metapaths)

    def say(act: Act) -> str:
        others = {"rewrite": "alpha; beta", "continue": "continue" if act.step < 2 else "terminate"}
        return next(said) if act.role == "metapaths" else others.get(act.role, TASK.labels[0])

    return drive(generator, say)


def test_of_each_group_one_line_is_asked_and_nobody_decides_whether() -> None:
    effects, found = run(episodes(((0, 1), (2,), (3,))).episode(make_case()), ["1", "2", "3", "0", "2", "9"])
    roles = [effect.role for effect in effects if isinstance(effect, Act)]
    assert "retrieve" not in roles and "answer" not in roles and roles.count("metapaths") == 6
    offered = [effect.choices for effect in effects if isinstance(effect, Act) and effect.role == "metapaths"]
    assert offered == [("0", "1"), ("2",), ("3",)] * 2
    looked = [effect for effect in effects if isinstance(effect, RetrieveFor)]
    assert [request.partitions for request in looked] == [(1, 2, 3), (0, 2)]
    assert [(step.paths, step.path_errors) for step in found.history] == [((1, 2, 3), 0), ((0, 2), 1)]


def test_without_groups_nothing_is_looked_up() -> None:
    effects, found = run(episodes(()).episode(make_case()), [])
    assert not any(step.retrieved for step in found.history) and len(found.history) == 2
    assert not any(isinstance(effect, RetrieveFor) for effect in effects)


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4, unique=True))
def test_a_step_is_charged_once_however_many_turns_name_its_lines(ids: list[int]) -> None:
    def played(naming: int) -> Episode:
        turns = [
            ("top", "rewrite", 0),
            *[("top", "metapaths", 0)] * naming,
            ("low", "summarise", 0),
            ("top", "predict", 1),
        ]
        done = tuple(Turn(a, r, i, s, Completion("x"), True) for i, (a, r, s) in enumerate(turns))
        return Episode("p", 0, Prediction(1, (ReasoningStep("q", "a", True, tuple(ids), 0, 0, "e"),)), done)

    once, many = (score_episode(played(naming), 1, SPEC) for naming in (1, len(ids)))
    assert many.total == pytest.approx(once.total) and many.terms == pytest.approx(once.terms)
    assert once.terms["price"] == pytest.approx(-sum(SPEC.prices[i] for i in ids))
    assert "price" in many.per_turn[1] and all("price" not in turn for turn in many.per_turn[2:])


def drawn(seed: int, names: int) -> tuple[list[Case], list[frozenset[str]]]:
    """Cases of one drug each of `names`: rare ones need the graph, "graft" the past. No rare name is met twice."""
    rng = np.random.default_rng(seed)
    cases, wanted = [], []
    for i in range(300):
        kind = rng.integers(3)
        topic = (f"drug common{rng.integers(5)}", f"drug rare{i + names}", "disease graft")[kind]
        cases.append(replace(make_case(i), topics=("disease usual", topic)))
        wanted.append(frozenset(((), ("graph",), ("past",))[kind]))
    return cases, wanted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_router_learns_a_planted_rule_and_carries_it_to_names_never_seen(seed: int) -> None:
    ids = by_source(MENU)
    assert ids == {"graph": (0, 1), "past": (2,), "reports": (3,)}
    router = fit_router(*drawn(seed, 0), ids)
    cases, wanted = drawn(seed + 9, 1000)
    expected = [tuple(i for name in ids if name in own for i in ids[name]) for own in wanted]
    assert [router(case) for case in cases] == [(both,) if both else () for both in expected]  # reports: never asked
    everywhere = fit_router(cases, [frozenset(("graph", "past")) for _ in cases], ids)
    assert all(everywhere(case) == ((0, 1, 2),) for case in cases)
    assert fit_router([], [], ids)(cases[0]) == ()


def test_only_right_episodes_teach_and_only_what_was_looked_up_counts() -> None:
    def episode(label: int, *steps: ReasoningStep) -> Episode:
        return Episode("p", 0, Prediction(label, steps), ())

    cases = [make_case(i, label=1) for i in range(3)]
    looked, own = ReasoningStep("q", "a", True, (0, 3)), ReasoningStep("q", "a", False, (2,))
    kept, asked = asked_rightly([episode(1, looked, own), episode(0, looked), episode(1)], cases, MENU)
    assert kept == [cases[0], cases[2]] and asked == [frozenset(("graph", "reports")), frozenset()]


@pytest.mark.slow
def test_in_the_demo_everyone_is_asked_and_a_router_asks_whom_visits_need(tmp_path: Path) -> None:
    names = "scripted_everyone,scripted_router,scripted_router_truth"
    own = ["system=ghar_all", "data.patients=200", "eval.bootstrap=20", "threads=1", f"data.cache={tmp_path / 'cache'}"]
    found = evaluate(load([*own, f"run_dir={tmp_path / 'run'}", f"eval.variants=[{names}]"]))["policies"]
    everyone, router, truth = (found[name] for name in names.split(","))
    asked = [everyone[f"asked_{source}"][0] for source in ("graph", "past", "reports")]
    assert min(asked) == max(asked) >= 1 and everyone["retrieval_rate"][0] == 1
    assert truth["source_f1"][0] > 0.8 and router["source_f1"][0] > everyone["source_f1"][0]
    assert sum(truth[f"asked_{source}"][0] for source in ("graph", "past", "reports")) < sum(asked) / 2


@pytest.mark.slow
def test_a_router_and_everyone_need_several_sources(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"system.decision=everyone asks several sources"):
        load(["system.decision=everyone"])
    with pytest.raises(BadInput, match=r"system.ablation=nm asks the whole corpus"):
        load(["system=ghar_all", "system.decision=everyone", "system.ablation=nm"])
    made = build(Records(load(["data.patients=60", "threads=1", f"data.cache={tmp_path}"])))
    assert "everyone" not in made.variants and "router" not in made.variants
