"""system.prices on a world of four sources: what could have been reached for what was paid stands in the summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from envs.records import Records
from envs.system import build
from launch.entry import load

FOUR = ("system=ghar_all", "data.patients=120", "eval.bootstrap=20", "threads=1")


def test_the_budget_of_each_variant_stands_beside_the_ceilings(tmp_path: Path) -> None:
    config = load([*FOUR, f"data.cache={tmp_path}", "system.prices=[0.1,0.1,1.0]"])
    made = build(Records(config))
    cases = made.cases.test
    rows = {
        name: [{"asked": asked} for _ in cases]
        for name, asked in (
            ("never", {"graph": 0, "past": 0, "reports": 0}),
            ("mid", {"graph": 1, "past": 1, "reports": 0}),
            ("always", {"graph": 9, "past": 2, "reports": 1}),
        )
    }
    found, ceilings = made.summary(rows | {"other": []})["budget"], made.ceilings(cases)
    assert ceilings is not None and found["prices"] == {"graph": 0.1, "past": 0.1, "reports": 1.0}
    assert found["at_cost"]["never"] == [0.0, pytest.approx(ceilings["training"])]
    assert found["at_cost"]["always"] == [pytest.approx(2.1), pytest.approx(ceilings["training+graph+past+reports"])]
    assert found["at_cost"]["mid"][0] == pytest.approx(0.2)
    assert ceilings["training"] < found["at_cost"]["mid"][1] < ceilings["training+graph+past+reports"]
    assert "other" not in found["at_cost"]
    free = replace(config, system=replace(config.system, prices=()))  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert build(Records(free)).summary(rows) == {}
