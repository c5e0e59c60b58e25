"""KARE plays what it played at commit a156ecb, before systems became one noun."""

from __future__ import annotations

from typing import Any

import pytest

from envs.system import System
from tests.envs.golden import fingerprint, played, recorded, system_of

[GOLDEN] = recorded("kare")
OWN = ("+experiment=kare_demo", "task=kare_readmission", "data=demo", "data.patients=150", "task.max_test=12")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"data.cache={tmp_path_factory.mktemp('cache')}"


@pytest.fixture(scope="module")
def system(cache: str) -> System[Any]:
    return system_of(*OWN, cache)


@pytest.mark.parametrize("name", list(GOLDEN["variants"]))
def test_the_rule_plays_as_before(system: System[Any], cache: str, name: str) -> None:
    wanted, episodes = GOLDEN["variants"][name], played(system, name, *OWN, cache)
    rewards = [system.reward(e, case) for e, case in zip(episodes, system.cases.test, strict=True)]
    assert [e.sample_id for e in episodes] == GOLDEN["samples"]
    assert [e.prediction.label for e in episodes] == wanted["predictions"]
    assert [round(r.total, 9) for r in rewards] == wanted["rewards"]
    assert [round(r.terms["orm"], 9) for r in rewards] == wanted["terms"]["orm"]
    assert [len(e.turns) for e in episodes] == wanted["turns"]
    assert [len(e.prediction.history) for e in episodes] == wanted["steps"]
    assert [fingerprint(e)[:8] for e in episodes] == wanted["episodes"]
