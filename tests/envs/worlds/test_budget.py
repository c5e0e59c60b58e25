"""What accuracy can be had for what cost, against every policy that there is, and against the sources' ceilings."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from ghar.envs.worlds.severity.budget import (
    LOST,
    NAMED,
    OPEN,
    SEEN,
    BudgetPolicy,
    Point,
    PricedItem,
    QueryGame,
    VisitFacts,
    accuracy_at,
    budget_curve,
    corners,
    facts_of,
    items_of,
)
from ghar.envs.worlds.severity.source_upper_bounds import report_coverage, source_ceilings
from ghar.envs.worlds.severity.upper_bounds import label_law
from ghar.envs.worlds.severity.world import World, generate_world, truth_of

pytestmark = pytest.mark.slow

SHARE = st.sampled_from([0.0, 0.3, 1.0])
PRICE = st.sampled_from([0.0, 0.5, 1.0, 2.0])


@st.composite
def small_items(draw: st.DrawFn) -> PricedItem:
    """Two grades at most; the answer tells, names or does neither."""
    low, high, share = draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.floats(0.1, 0.9))
    law = np.bincount([low, high], [share, 1 - share], minlength=10)
    more = draw(st.sampled_from([0.5, 1.0, math.inf]))
    return PricedItem(tuple(law.tolist()), draw(PRICE), 1 - draw(SHARE), draw(SHARE), more)


def every_policy(items: tuple[PricedItem, ...], task: str, known: int, at: tuple[int, ...]) -> list[Point]:
    """(cost, accuracy) of every deterministic policy for one visit, by writing down its whole tree."""

    def stop(known: int, at: tuple[int, ...]) -> float:
        """By going through all grades of what is not known."""
        acuity = np.zeros(10)
        laws = [items[i].law for i in range(len(at)) if at[i] != SEEN]
        for grades in product(*([g for g in range(10) if law[g] > 0] for law in laws)):
            chance = math.prod(law[grade] for law, grade in zip(laws, grades, strict=True))
            acuity[max((known, *grades))] += chance
        return float(label_law(acuity[None], task).max())

    def outcomes(i: int, known: int, at: tuple[int, ...]) -> Iterator[tuple[float, int, tuple[int, ...]]]:
        item = items[i]
        tells = 1.0 if at[i] == NAMED else item.coverage * (1 - item.named)
        for grade, chance in enumerate(item.law):
            yield tells * chance, max(known, grade), (*at[:i], SEEN, *at[i + 1 :])
        if at[i] == OPEN:
            yield item.coverage * item.named, known, (*at[:i], NAMED, *at[i + 1 :])
            yield 1 - item.coverage, known, (*at[:i], LOST, *at[i + 1 :])

    @cache
    def trees(known: int, at: tuple[int, ...]) -> list[Point]:
        found = [(0.0, stop(known, at))]
        for i, item in enumerate(items):
            price = {OPEN: item.price, NAMED: item.more}.get(at[i], math.inf)
            if math.isinf(price):
                continue
            after = [(chance, trees(k, s)) for chance, k, s in outcomes(i, known, at) if chance > 0]
            for chosen in product(*(own for _, own in after)):
                cost = sum(chance * own[0] for (chance, _), own in zip(after, chosen, strict=True))
                found.append((price + cost, sum(c * own[1] for (c, _), own in zip(after, chosen, strict=True))))
        return list(dict.fromkeys((round(cost, 12), round(hits, 12)) for cost, hits in found))

    return trees(known, at)


def best_of_all(visits: list[list[Point]], budget: float) -> float:
    """The best mean accuracy of mixtures of policies whose mean cost is at most `budget`, by linear programming."""
    points = [(i, *point) for i, own in enumerate(visits) for point in own]
    mixed = np.array([[float(i == j) for i, _, _ in points] for j in range(len(visits))])
    found = linprog(
        [-hits for *_, hits in points], A_ub=[[cost for _, cost, _ in points]], b_ub=[budget * len(visits)],
        A_eq=mixed, b_eq=np.ones(len(visits)),
    )  # fmt: skip
    return -found.fun / len(visits)


@settings(max_examples=40)
@given(
    items=st.lists(small_items(), min_size=1, max_size=2),
    visits=st.lists(st.tuples(st.integers(0, 9), st.lists(st.booleans(), min_size=2, max_size=2)), min_size=1,
                    max_size=3),
    budget=st.floats(0.0, 4.0),
    task=st.sampled_from(["los", "dec"]),
)  # fmt: skip
def test_no_policy_of_all_is_better_and_one_is_as_good(items, visits, budget, task) -> None:
    items, n = tuple(items), len(items)
    has = np.array([own[:n] for _, own in visits])
    none = np.zeros(has.shape, dtype=bool)
    facts = VisitFacts(np.array([known for known, _ in visits]), has, np.zeros(has.shape, int), ~none, none)
    curve = [plan.expected(facts) for plan in corners(QueryGame(items, task), facts)]
    every = [
        every_policy(items, task, known, tuple(OPEN if own[i] else SEEN for i in range(n))) for known, own in visits
    ]
    assert accuracy_at(curve, budget) == pytest.approx(best_of_all(every, budget), abs=1e-4)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    root = tmp_path_factory.mktemp("budget") / "world"
    return generate_world(root, seed=3, patients=300, two_steps=0.25, further=(0.25, 0.2, 0.4))


def test_the_ends_of_the_curve_are_the_ceilings_of_training_alone_and_of_all_sources(world: World) -> None:
    visits, told_by = halves(world)
    sources = source_ceilings(world, visits, "los", told_by)
    for names in (("graph", "past", "reports"), ("graph", "past"), ("graph", "reports"), ("past", "reports")):
        curve = budget_curve(world, visits, "los", told_by, dict.fromkeys(names, 1.0))
        assert curve[0] == (0.0, pytest.approx(sources[("training",)], abs=1e-12))
        assert curve[-1][1] == pytest.approx(sources[("training", *names)], abs=1e-9)
        costs, hits = zip(*curve, strict=True)
        assert list(costs) == sorted(costs) and max(hits) <= curve[-1][1] + 1e-3


def test_what_is_paid_and_reached_is_that_of_each_visit_followed_by_itself(world: World) -> None:
    visits, told_by = halves(world)
    truth = truth_of(world, visits)
    facts = facts_of(world, truth, report_coverage(world, truth, told_by))
    game = QueryGame(items_of(world, facts, {"graph": 0.3, "past": 0.1, "reports": 1.0}), "los")
    plan, paid, right = BudgetPolicy(game, 0.2), 0.0, 0.0
    for row in range(len(visits)):
        at, known = [OPEN if own else SEEN for own in facts.has[row]], int(facts.common[row])
        while (does := int(plan.at(tuple(at))[2][known])) > 0:
            i = does - 1
            paid += game.items[i].price if at[i] == OPEN else game.items[i].more
            at[i] = LOST if not facts.coverage[row, i] else NAMED if facts.named[row, i] and at[i] == OPEN else SEEN
            known = max(known, int(facts.grade[row, i])) if at[i] == SEEN else known
        right += float(game.hits(tuple(at))[known])
    assert plan.reached(facts) == (pytest.approx(paid / len(visits)), pytest.approx(right / len(visits)))


def test_dearer_reports_are_asked_less_and_a_budget_buys_less(world: World) -> None:
    visits, told_by = halves(world)
    cheap = budget_curve(world, visits, "los", told_by, {"graph": 0.1, "past": 0.1, "reports": 0.1})
    dear = budget_curve(world, visits, "los", told_by, {"graph": 0.1, "past": 0.1, "reports": 1.0})
    assert dear[-1][0] > cheap[-1][0] and dear[-1][1] == pytest.approx(cheap[-1][1], abs=1e-9)
    assert all(accuracy_at(dear, c) <= accuracy_at(cheap, c) + 1e-9 for c in np.linspace(0, cheap[-1][0], 20))


def test_a_world_without_further_sources_is_refused(tmp_path: Path) -> None:
    plain = generate_world(tmp_path / "plain", seed=1, patients=40)
    with pytest.raises(ValueError, match="no further sources"):
        budget_curve(plain, [int(plain.truth["visit_id"][0])], "los", (), {"graph": 1.0})


def halves(world: World) -> tuple[list[int], list[int]]:
    """Visits to be tested, and stays of the other patients."""
    told = world.truth.filter(world.truth["los"].is_not_null())
    first = told["subject_id"] % 2 == 0
    return told.filter(first)["visit_id"].to_list(), told.filter(~first)["visit_id"].to_list()
