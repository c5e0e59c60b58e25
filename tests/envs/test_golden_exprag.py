"""EXPRAG's rules play the episodes that they played before its room was made (commit a156ecb): golden_exprag.json.

An episode's digest is of its trace: every act with its reply, every look-up with what it found. There was no reward
then, so `terms` holds the scores of the sets of options. Only the names of the configuration's keys are new.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envs.records import Records
from envs.rollout import Job, rollout
from envs.system import build
from ghar.episode import Act, Episode, Record
from launch.entry import load

GOLDEN = json.loads((Path(__file__).parent / "golden_exprag.json").read_text())["groups"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden")


@pytest.mark.parametrize("group", GOLDEN, ids=[group["task"] for group in GOLDEN])
def test_the_same_episodes_as_before(cache: Path, group: dict[str, Any]) -> None:
    config = load([text.replace("CACHE", str(cache)) for text in group["overrides"]])
    system = build(Records(config))
    assert [case.sample_id for case in system.cases.test] == group["samples"]
    for name, before in group["variants"].items():
        variant = system.variants[name]
        jobs = [Job(case.sample_id, 0, partial(system.episode, case, variant)) for case in system.cases.test]
        policies = {"top": system.fixed[variant.who]()}
        played = rollout(jobs, policies, system.corpus, seed=config.seed, in_flight=config.env.in_flight, steady=True)
        digests = [_digest(episode) for episode in played]
        rows = [system.row(e, case, variant) for e, case in zip(played, system.cases.test, strict=True)]
        terms = {key: [round(row["scores"][key], 9) for row in rows] for key in sorted(before["terms"])}
        assert [e.prediction.label for e in played] == before["predictions"]
        assert terms == before["terms"]
        assert [len(e.turns) for e in played] == before["turns"]
        assert [len(e.prediction.history) for e in played] == before["steps"]
        assert [digest[:8] for digest in digests] == before["episodes"]
        assert hashlib.sha256("\n".join(digests).encode()).hexdigest() == before["sha256"]


def _digest(episode: Episode) -> str:
    trace = [_record(record) for record in episode.trace]
    text = json.dumps(trace, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _record(record: Record) -> list[Any]:
    effect, result = record.effect, record.result
    if isinstance(effect, Act):
        return [effect.agent, effect.role, effect.prompt, list(effect.choices), effect.step, result.text]
    partitions = None if effect.partitions is None else [int(p) for p in effect.partitions]
    found: Any = result
    passages = [[p.text, round(float(p.score), 6) + 0.0, int(p.ident)] for p in found.passages]
    return [effect.query, partitions, int(effect.top_n), passages]
