"""Fingerprints of episodes, to hold today's against those recorded at commit a156ecb (golden_*.json)."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from envs.play import play, stage_of
from envs.records import Records
from envs.system import System, build
from ghar.episode import Act, Episode
from launch.entry import load


def recorded(name: str) -> list[dict[str, Any]]:
    """The groups of golden_NAME.json."""
    return json.loads(Path(__file__).with_name(f"golden_{name}.json").read_text())["groups"]


def system_of(*overrides: str) -> System[Any]:
    return build(Records(load(list(overrides))))


def played(system: System[Any], name: str, *overrides: str) -> list[Episode]:
    """The test cases as a variant of a fixed policy plays them."""
    variant = system.variant(name)
    stage = stage_of(system, variant, load(list(overrides)))
    return play(stage, system.cases.test, system.fixed[variant.who](), seed=0, title=name)


def fingerprint(episode: Episode) -> str:
    """A digest of the trace: effects and results, nothing that depends on the clock or on classes' names."""
    trace = [_act(record) if isinstance(record.effect, Act) else _lookup(record) for record in episode.trace]
    text = json.dumps(trace, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _act(record: Any) -> list[Any]:
    act = record.effect
    return [act.agent, act.role, act.prompt, list(act.choices), act.step, record.result.text]


def _lookup(record: Any) -> list[Any]:
    ask = record.effect
    partitions = None if ask.partitions is None else [int(p) for p in ask.partitions]
    found = [[p.text, round(float(p.score), 6) + 0.0, int(p.ident)] for p in record.result.passages]
    return [ask.query, partitions, int(ask.top_n), found]
