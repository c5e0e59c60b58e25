"""What a priced agent could have reached for what it paid (system.prices, a generated world of several sources)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ghar.envs.case import Case
from ghar.envs.ghar.settings import Settings
from ghar.envs.records import Records
from ghar.envs.worlds.severity.budget import accuracy_at, budget_curve
from ghar.envs.worlds.severity.upper_bounds import TASKS

Rows = Mapping[str, Sequence[Mapping[str, Any]]]


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
