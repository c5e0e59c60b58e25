"""What rules cannot answer is refused before anything is read or built."""

from __future__ import annotations

from pathlib import Path

import pytest

from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.errors import BadInput
from ghar.launch.entry import load

RULED = {"ghar": "scripted_ni", "kare": "scripted", "comparators": "rule_cot"}
TASKS = {"kare": "task=kare_readmission"}


@pytest.mark.parametrize("name", RULED)
@pytest.mark.parametrize("shown", ["", "_with_graphwalker.graphwalker"])
def test_a_rule_is_refused_before_tables_are_read_and_an_index_is_built(tmp_path: Path, name: str, shown: str) -> None:
    (tmp_path / "tables").mkdir()  # empty: whoever reads it says so
    given = ["data=mimic4", f"data.root={tmp_path / 'tables'}", f"data.cache={tmp_path / 'cache'}"]
    task, asked = TASKS.get(name, "task=los"), RULED[name] + shown
    records = Records(load([f"system={name}", task, *given, f"eval.variants=[{asked}]"]))
    with pytest.raises(BadInput, match="knows the grades of the demo world and nothing of these patients"):
        build(records)
    assert not (tmp_path / "cache").exists()
