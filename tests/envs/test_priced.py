"""system.prices on a world of four sources: what could have been reached for what was paid stands in the summary."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.launch.entry import load

pytestmark = pytest.mark.slow

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
    found, ceilings = made.report.summary(rows | {"other": []})["budget"], made.truth.upper_bounds(cases)
    assert ceilings is not None and found["prices"] == {"graph": 0.1, "past": 0.1, "reports": 1.0}
    assert found["at_cost"]["never"] == [0.0, pytest.approx(ceilings["training"])]
    assert found["at_cost"]["always"] == [pytest.approx(2.1), pytest.approx(ceilings["training+graph+past+reports"])]
    assert found["at_cost"]["mid"][0] == pytest.approx(0.2)
    assert ceilings["training"] < found["at_cost"]["mid"][1] < ceilings["training+graph+past+reports"]
    assert "other" not in found["at_cost"]
    free = replace(config, system=replace(config.system, prices=()))  # pyright: ignore[reportCallIssue, reportArgumentType]
    assert build(Records(free)).report.summary(rows) == {}


def test_real_patients_without_summaries_are_played_and_the_report_says_what_stands_for_them(
    shared_data: Path, tmp_path: Path
) -> None:
    tables, graph = shared_data / "mimic-iv-demo-2.2", shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz"
    if not tables.is_dir() or not graph.is_file():
        pytest.skip("the open MIMIC-IV demo or the subset of PrimeKG is not there")
    real = ("system=ghar_all", "data=mimic4", f"data.root={tables}", f"kg.path={graph}", "data.more=[omr]", "threads=1")
    made = build(Records(load([*real, f"data.cache={tmp_path}", "system.prices=[0.1,0.1,1.0]"])))
    stays = made.report.counts["visits"]
    assert made.report.counts["stays without a discharge summary, shown by their codes"] == stays > 0
    assert made.truth.upper_bounds(made.cases.test) is None
    assert made.report.summary({"scripted": [{"asked": {"graph": 1, "past": 0, "reports": 0}}]}) == {}
