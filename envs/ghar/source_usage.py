"""Which sources an episode asked, against which its visit needed (system.sources, a generated world of several), and
what a priced agent could have reached for what it paid (system.prices)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ghar.envs.case import Case
from ghar.envs.ghar.episode import Partition
from ghar.envs.ghar.joined_sources import MenuPart
from ghar.envs.ghar.settings import Settings
from ghar.envs.records import Records
from ghar.envs.worlds.severity.budget import accuracy_at, budget_curve
from ghar.envs.worlds.severity.upper_bounds import TASKS
from ghar.envs.worlds.severity.world import World
from ghar.episode import ReasoningStep
from ghar.metrics.bootstrap import ratio_interval
from ghar.metrics.rows import patients_of

GRAPH = "graph"
Row = Mapping[str, Any]
Rows = Mapping[str, Sequence[Row]]


def source_of(partition: Partition) -> str:
    """Whose a partition is."""
    return partition.source if isinstance(partition, MenuPart) else GRAPH


def needed_sources(world: World | None) -> Mapping[int, tuple[str, ...]] | None:
    """Visit -> the sources that hold a severity of it, whether or not it decides the outcome. None where no one knows,
    or where the graph is the only source."""
    if world is None or not world.further.any:
        return None
    graph = pl.any_horizontal(pl.col("rare_1", "rare_2", "chain").is_not_null())
    table = world.truth.select("visit_id", graph, pl.col("past").is_not_null(), pl.col("asks").is_not_null())
    names = (GRAPH, "past", "reports")
    return {visit: tuple(n for n, has in zip(names, needs, strict=True) if has) for visit, *needs in table.iter_rows()}


@dataclass(frozen=True, eq=False)
class AskedSources:
    """names: of the sources. of: source of each partition. needed: by visit, where a generated world knows."""

    names: tuple[str, ...]
    of: tuple[str, ...]
    needed: Mapping[int, tuple[str, ...]] | None

    def row(self, steps: Sequence[ReasoningStep], visit: int) -> dict[str, Any]:
        """asked: how often each source was asked, a partition counting once; needed: the sources that the visit needs.
        Nothing where there is one source alone."""
        if len(self.names) < 2:
            return {}
        asked = [self.of[partition] for step in steps if step.retrieved for partition in step.paths]
        counts = {name: asked.count(name) for name in self.names}
        return {"asked": counts} | ({"needed": self.needed[visit]} if self.needed is not None else {})

    def numbers(self, rows: Sequence[Row], draw: Mapping[str, int]) -> dict[str, Any]:
        """Of each source how often an episode asks it, and how precisely and completely those are asked that visits
        need: {"asked_SOURCE", "source_precision_SOURCE", "source_recall_SOURCE": [value, low, high]}, and the F1 of all
        (visit, source) pairs as "source_f1"."""
        if not rows or "asked" not in rows[0]:
            return {}
        shares: dict[str, Any] = {}
        ones = [1] * len(rows)
        who = patients_of(rows)

        def share(name: str, hits: Sequence[int], of: Sequence[int]) -> None:
            interval = ratio_interval(hits, of, patients=who, **draw)
            if interval is not None:
                shares[name] = interval.as_list()

        pairs = {"hit": [0] * len(rows), "asked": [0] * len(rows), "needed": [0] * len(rows)}
        for source in self.names:
            asked = [int(row["asked"][source] > 0) for row in rows]
            share(f"asked_{source}", [row["asked"][source] for row in rows], ones)
            if "needed" not in rows[0]:
                continue
            needed = [int(source in row["needed"]) for row in rows]
            hit = [a * n for a, n in zip(asked, needed, strict=True)]
            share(f"source_precision_{source}", hit, asked)
            share(f"source_recall_{source}", hit, needed)
            for name, own in (("hit", hit), ("asked", asked), ("needed", needed)):
                pairs[name] = [a + b for a, b in zip(pairs[name], own, strict=True)]
        if "needed" in rows[0]:
            both = [a + n for a, n in zip(pairs["asked"], pairs["needed"], strict=True)]
            share("source_f1", [2 * hit for hit in pairs["hit"]], both)
        return shares


def budget_summary(records: Records, settings: Settings, cases: Sequence[Case], rows: Rows) -> dict[str, Any]:
    """For summary.json, "budget": the prices; "curve", [mean cost a visit, best accuracy] of its corners; and of each
    variant [mean cost, best accuracy at that cost]. A look-up costs its price for each partition, as in the reward.

    cases: those that the rows are of. Empty without prices, and where no one knows what sources are worth.
    """
    config, world = records.config, records.world
    if not settings.prices or config.data.leakage != "paper" or config.task.name not in TASKS:
        return {}
    if world is None or not world.further.any:
        return {}
    prices = dict(zip(settings.sources, settings.prices, strict=True))
    seen = [sample.visit_id for sample in records.splits.train]
    curve = budget_curve(world, [case.visit_id for case in cases], config.task.name, seen, prices)
    paid = {
        name: float(np.mean([sum(prices[source] * n for source, n in row["asked"].items()) for row in own]))
        for name, own in rows.items()
        if own and "asked" in own[0]
    }
    of = {name: [cost, accuracy_at(curve, cost)] for name, cost in paid.items()}
    return {"budget": {"prices": prices, "curve": [list(point) for point in curve], "at_cost": of}}
