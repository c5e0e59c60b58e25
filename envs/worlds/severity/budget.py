"""What accuracy can be had for what cost: the best of all policies that pay for each look-up, by enumeration.

A record shows which rare condition, rare drug, graft and syndrome a visit has, and nothing of their grades. A policy
buys look-ups one after another, sees what each found, and stops when it likes; then it gives the most probable label.
For a rate (accuracy that a unit of cost must be worth) the best policy follows from the last look-up backwards, since
the highest grade found so far and what is still open say all that matters. The best accuracy at a mean cost is the
upper hull of these policies: look-ups are bought visit by visit, the ones of the highest worth for their price first,
the last kind for a part of the visits (a fractional knapsack). The policies know the story and not the draw; what
they pay and reach is computed on exactly the visits, as in source_ceilings.py, whose numbers are both ends of the
curve.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

import numpy as np
import polars as pl

from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity.source_upper_bounds import report_coverage
from ghar.envs.worlds.severity.upper_bounds import acuity_law, label_law, rare_numbers
from ghar.envs.worlds.severity.world import World, truth_of

# Of an item: known or absent; not asked; asked, its grade stands elsewhere; asked in vain.
SEEN, OPEN, NAMED, LOST = range(4)
STOP = 0  # action; number i + 1 asks item i
GAIN = 1e-5  # accuracy: corners of the curve that are worth less are left out
EVEN = 1e-12
Statuses = tuple[int, ...]
Point = tuple[float, float]  # mean cost, accuracy


@dataclass(frozen=True)
class PricedItem:
    """Something whose grade a visit's outcome may follow from. law: P(grade), grades 0..9. price: of asking; infinite
    where no one can be asked. coverage: chance that the answer tells anything. named: chance that it names only where
    the grade stands, which costs `more`."""

    law: tuple[float, ...]
    price: float
    coverage: float = 1.0
    named: float = 0.0
    more: float = math.inf


@dataclass(frozen=True, eq=False)
class VisitFacts:
    """Of some visits: the grade that training teaches (int64 [n]); and of each item (all [n, items]) whether a visit
    has it, its grade, whether asking tells anything, and whether only where the grade stands."""

    common: np.ndarray
    has: np.ndarray
    grade: np.ndarray
    coverage: np.ndarray
    named: np.ndarray

    def starts(self) -> dict[Statuses, np.ndarray]:
        """The visits (rows) by what is open in the beginning."""
        kinds, inverse = np.unique(self.has, axis=0, return_inverse=True)
        rows = inverse.reshape(-1)
        return {tuple(np.where(kind, OPEN, SEEN).tolist()): np.flatnonzero(rows == i) for i, kind in enumerate(kinds)}


@dataclass(frozen=True, eq=False)
class QueryGame:
    """Items to be asked about, and what knowing is worth: P(the most probable label is right)."""

    items: tuple[PricedItem, ...]
    task: str
    _hits: dict[Statuses, np.ndarray] = field(default_factory=dict, repr=False)

    def hits(self, at: Statuses) -> np.ndarray:
        """float64 [10]: by the highest grade that is known, the rest being unknown."""
        if at not in self._hits:
            cdf = np.ones(story.GRADES)
            for item, status in zip(self.items, at, strict=True):
                cdf = cdf if status == SEEN else cdf * np.cumsum(item.law)
            grades = np.arange(story.GRADES)
            self._hits[at] = label_law(acuity_law(grades, np.tile(cdf, (story.GRADES, 1))), self.task).max(axis=1)
        return self._hits[at]

    @cached_property
    def raised(self) -> list[np.ndarray]:
        """Of each item float64 [10, 10]: P(highest known grade after it is known | before)."""
        grades = np.arange(story.GRADES)
        after = np.maximum(grades[:, None], grades)
        return [np.stack([np.bincount(row, item.law, story.GRADES) for row in after]) for item in self.items]


@dataclass(frozen=True, eq=False)
class BudgetPolicy:
    """The best policy where a unit of cost must be worth `rate`."""

    game: QueryGame
    rate: float
    _kept: dict[Statuses, tuple[np.ndarray, np.ndarray, np.ndarray]] = field(default_factory=dict, repr=False)

    def at(self, at: Statuses) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """By the highest known grade, each [10]: expected accuracy, expected cost, and what is done next."""
        if at not in self._kept:
            hits, cost, does = self.game.hits(at).copy(), np.zeros(story.GRADES), np.full(story.GRADES, STOP)
            for i in range(len(at)):
                asked = self._asked(at, i)
                if asked is None:
                    continue
                better = asked[0] - self.rate * asked[1] > hits - self.rate * cost + EVEN
                hits, cost = np.where(better, asked[0], hits), np.where(better, asked[1], cost)
                does = np.where(better, i + 1, does)
            self._kept[at] = hits, cost, does
        return self._kept[at]

    def _asked(self, at: Statuses, i: int) -> tuple[np.ndarray, np.ndarray] | None:
        item = self.game.items[i]
        price = {OPEN: item.price, NAMED: item.more}.get(at[i], math.inf)
        if math.isinf(price):
            return None
        chances = {SEEN: 1.0}
        if at[i] == OPEN:
            coverage = item.coverage
            chances = {SEEN: coverage * (1 - item.named), NAMED: coverage * item.named, LOST: 1 - coverage}
        hits, cost = np.zeros(story.GRADES), np.full(story.GRADES, price)
        for status, chance in chances.items():
            if chance > 0:
                own = self.at(_with(at, i, status))[:2]
                own_hits, own_cost = (self.game.raised[i] @ part if status == SEEN else part for part in own)
                hits, cost = hits + chance * own_hits, cost + chance * own_cost
        return hits, cost

    def expected(self, facts: VisitFacts) -> Point:
        """Mean cost and accuracy, grades drawn by the items' laws."""
        parts = [(self.at(start), rows) for start, rows in facts.starts().items()]
        hits, cost = (sum(float(part[k][facts.common[rows]].sum()) for part, rows in parts) for k in (0, 1))
        return cost / len(facts.common), hits / len(facts.common)

    def reached(self, facts: VisitFacts) -> Point:
        """The same of the visits as they are."""
        hits = cost = 0.0
        waiting = [(start, rows, facts.common[rows]) for start, rows in facts.starts().items()]
        while waiting:
            at, rows, grades = waiting.pop()
            does = self.at(at)[2][grades]
            hits += float(self.game.hits(at)[grades[does == STOP]].sum())
            for i, item in enumerate(self.game.items):
                chosen = does == i + 1
                if not chosen.any():
                    continue
                some, before = rows[chosen], grades[chosen]
                cost += len(some) * (item.price if at[i] == OPEN else item.more)
                after = np.full(len(some), SEEN)
                if at[i] == OPEN:
                    after = np.where(facts.named[some, i], NAMED, after)
                    after = np.where(facts.coverage[some, i], after, LOST)
                raised = np.where(after == SEEN, np.maximum(before, facts.grade[some, i]), before)
                for status in np.unique(after).tolist():
                    own = after == status
                    waiting.append((_with(at, i, status), some[own], raised[own]))
        return cost / len(facts.common), hits / len(facts.common)


def _with(at: Statuses, i: int, status: int) -> Statuses:
    return (*at[:i], status, *at[i + 1 :])


def corners(game: QueryGame, facts: VisitFacts) -> list[BudgetPolicy]:
    """The policies at the corners of the hull of (mean expected cost, expected accuracy), the cheapest first."""

    def between(left: BudgetPolicy, right: BudgetPolicy) -> list[BudgetPolicy]:
        (cheap, low), (dear, high) = left.expected(facts), right.expected(facts)
        if dear - cheap <= EVEN or high - low <= GAIN:
            return []
        rate = (high - low) / (dear - cheap)
        middle = BudgetPolicy(game, rate)
        cost, hits = middle.expected(facts)
        if hits - rate * cost <= low - rate * cheap + GAIN:
            return []
        return [*between(left, middle), middle, *between(middle, right)]

    first, last = BudgetPolicy(game, 1 / EVEN), BudgetPolicy(game, 0.0)
    return [first, *between(first, last), last]


def accuracy_at(curve: Sequence[Point], cost: float) -> float:
    """The best accuracy at a mean cost: between two corners some visits go by the one policy, the rest by the other."""
    costs, hits = zip(*curve, strict=True)
    return float(np.interp(cost, costs, hits))


def budget_curve(
    world: World, visits: Iterable[int], task: str, report_stays: Collection[int], prices: Mapping[str, float]
) -> list[Point]:
    """(mean cost a visit, best accuracy) at the corners, the cheapest first, on exactly these visits.

    prices: of one look-up in "graph", "past", "reports"; a source that is not named cannot be asked. report_stays:
    stays whose reports may be shown. Raises BadInput and ValueError as `source_ceilings` does.
    """
    if not world.further.any:
        raise ValueError(f"{world.root} has no further sources")
    truth = truth_of(world, visits)
    coverage = report_coverage(world, truth, report_stays)
    facts = facts_of(world, truth, coverage)
    points = [plan.reached(facts) for plan in corners(QueryGame(items_of(world, facts, prices), task), facts)]
    return points[:1] + [later for earlier, later in pairwise(points) if later[0] > earlier[0]]


def facts_of(world: World, truth: pl.DataFrame, coverage: np.ndarray) -> VisitFacts:
    """Items: rare condition, rare drug, graft with a row that tells, graft that numbers tell, syndrome."""
    rare = rare_numbers(truth)
    severity = world.rare_severity
    past = truth["past"].fill_null(0).to_numpy()
    slope = truth["slope"].fill_null(0).to_numpy() > 0 if "slope" in truth.columns else np.zeros(len(past), dtype=bool)
    chained = truth["chain"].is_not_null().to_numpy()
    asks = truth["asks_grade"].fill_null(0).to_numpy()
    sure, never = np.ones(len(past), dtype=bool), np.zeros(len(past), dtype=bool)
    return VisitFacts(
        truth["common_acuity"].to_numpy(),
        np.stack([rare[:, 0] >= 0, rare[:, 1] >= 0, (past > 0) & ~slope, (past > 0) & slope, asks > 0], axis=1),
        np.stack([severity[rare[:, 0]], severity[rare[:, 1]], past, past, asks], axis=1),
        np.stack([sure, sure, sure, sure, coverage], axis=1),
        np.stack([never, never, chained, never, never], axis=1),
    )


def items_of(world: World, facts: VisitFacts, prices: Mapping[str, float]) -> tuple[PricedItem, ...]:
    """The same in the story's terms: a rare drug takes two look-ups in the graph, a chained past one more."""
    graph, past, reports = (prices.get(name, math.inf) for name in ("graph", "past", "reports"))
    conditions, drugs = (_shares(half) for half in np.split(world.rare_severity, 2))
    stated = (0.0, *[1 / (story.GRADES - 1)] * (story.GRADES - 1))

    def share(part: np.ndarray, i: int) -> float:
        own = part[facts.has[:, i], i]
        return float(own.mean()) if own.size else 0.0

    return (
        PricedItem(conditions, graph),
        PricedItem(drugs, 2 * graph),
        PricedItem(stated, past, named=share(facts.named, 2), more=graph),
        PricedItem(stated, past),
        PricedItem(stated, reports, coverage=share(facts.coverage, 4)),
    )


def _shares(severity: np.ndarray) -> tuple[float, ...]:
    return tuple((np.bincount(severity, minlength=story.GRADES) / len(severity)).tolist())
