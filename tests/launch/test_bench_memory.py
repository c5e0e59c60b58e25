"""The memory measurement at its smallest: all sides take the same step, and peaks are those of their processes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.memory import SIDES, Step, compare, take

pytestmark = pytest.mark.slow

TINY = Step("", "", 32, 2, 2, 64, threads=1, rows=4, prompt=8, reply=4, together=2)


@pytest.mark.parametrize("finetune", SIDES)
def test_all_sides_take_the_same_step(finetune: str) -> None:
    found = [take(replace(TINY, side=side, finetune=finetune), torch.device("cpu")) for side in SIDES[finetune]]
    assert abs(found[0]["loss/value"]) > 0.1
    for other in found[1:]:
        assert other == pytest.approx({name: found[0][name] for name in other}, abs=1e-5)


def test_each_side_is_measured_in_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.memory.SIDES", {"lora": ("head", "separate")})
    result = compare(tmp_path, TINY, repeats=1, timeout=1800)
    ours, other = result["lora"]["head"], result["lora"]["separate"]
    assert 0 < ours["MB"] < 1000 and 0 < other["MB"] < 1000
    assert ours["share of separate"] == pytest.approx(ours["MB"] / other["MB"])
