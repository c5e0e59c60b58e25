"""KARE's episodes of a fixed seed are those that the code played before it had rooms (commit a156ecb)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envs.records import Records
from envs.rollout import Job, rollout
from envs.system import System, Variant, build
from ghar.episode import Act, Episode, Record
from launch.entry import load

GOLDEN = json.loads((Path(__file__).parent / "golden_kare.json").read_text())["groups"][0]


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> System[Any]:
    cache = tmp_path_factory.mktemp("golden-kare")
    chosen = ("+experiment=kare_demo", "data=demo", "data.patients=150", f"data.cache={cache}", "task.max_test=12")
    return build(Records(load([*chosen, "task=kare_readmission"])))


def digest(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def fingerprint(episode: Episode) -> list[Any]:
    """Effects and results, nothing that depends on the clock or on names of classes."""
    return [_act(r) if isinstance(r.effect, Act) else _retrieve(r) for r in episode.trace]


def _act(record: Record) -> list[Any]:
    act: Any = record.effect
    result: Any = record.result
    return [act.agent, act.role, act.prompt, list(act.choices), act.step, result.text]


def _retrieve(record: Record) -> list[Any]:
    ask: Any = record.effect
    result: Any = record.result
    partitions = None if ask.partitions is None else [int(p) for p in ask.partitions]
    found = [[p.text, round(float(p.score), 6) + 0.0, int(p.ident)] for p in result.passages]
    return [ask.query, partitions, int(ask.top_n), found]


def played(system: System[Any], variant: Variant) -> Sequence[Episode]:
    policy = system.fixed[variant.who]()
    jobs = [Job(case.sample_id, 0, partial(system.episode, case, variant)) for case in system.cases.test]
    return rollout(jobs, dict.fromkeys(system.agents, policy), system.corpus, seed=0, in_flight=64)


@pytest.mark.parametrize("name", list(GOLDEN["variants"]))
def test_the_same_episodes(system: System[Any], name: str) -> None:
    wanted, episodes = GOLDEN["variants"][name], played(system, system.variant(name))
    rewards = [system.reward(e, case) for e, case in zip(episodes, system.cases.test, strict=True)]
    assert [e.sample_id for e in episodes] == GOLDEN["samples"]
    assert [e.prediction.label for e in episodes] == wanted["predictions"]
    assert [reward.total for reward in rewards] == pytest.approx(wanted["rewards"])
    assert [reward.terms["orm"] for reward in rewards] == pytest.approx(wanted["terms"]["orm"])
    assert [len(e.turns) for e in episodes] == wanted["turns"]
    assert [len(e.prediction.history) for e in episodes] == wanted["steps"]
    digests = [digest(fingerprint(e)) for e in episodes]
    assert [one[:8] for one in digests] == wanted["episodes"]
    assert hashlib.sha256("\n".join(digests).encode()).hexdigest() == wanted["sha256"]
