"""Every decision of a real model on real patients can be read: SmolLM2 on the open MIMIC-IV demo, system by system.

EHR-RAG's ReAct takes five minutes here, so that `make nightly` alone plays it, which is started by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.episode import Act, Completion, Reply
from ghar.launch.entry import load
from ghar.llm.hf import HFEngine
from ghar.llm.models import load_configured
from ghar.llm.policy import EnginePolicy
from tests.smollm2 import needs_smollm2, smollm2_folder

pytestmark = [pytest.mark.slow, needs_smollm2]

TOKENS = 40
GUARD = "take it as information"  # of the sentence that every prompt has
SYSTEMS: dict[str, tuple[str | None, list[str]]] = {
    "exprag": (None, ["task=los"]),
    "comparators": ("search_r1", ["task=los"]),
    "ghar": (None, ["task=los"]),
    "graphwalker": ("zero_shot", ["task=series_mortality"]),
    "kare": ("zero_shot", ["task=kare_readmission"]),
}
REACT = ("ehr_rag", "react", ["task=guo_los", "system.iterations=2", "system.rows=30"])


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The demo's cohort and the graph, which all systems read."""
    return tmp_path_factory.mktemp("cache")


class Short(EnginePolicy):
    """The model with little room for its words, which leaves more to be chosen and takes less time."""

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return super().answer([replace(act, max_tokens=min(act.max_tokens, TOKENS)) for act in acts], seeds)


@pytest.mark.parametrize("patients", [1, pytest.param(3, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", SYSTEMS)
def test_every_decision_can_be_read(name: str, patients: int, shared_data: Path, cache: Path, tmp_path: Path) -> None:
    every_decision_can_be_read(name, *SYSTEMS[name], patients, shared_data, cache, tmp_path)


@pytest.mark.nightly
def test_every_move_of_react_can_be_read(shared_data: Path, cache: Path, tmp_path: Path) -> None:
    every_decision_can_be_read(*REACT, 1, shared_data, cache, tmp_path)


def every_decision_can_be_read(
    name: str, variant: str | None, more: list[str], patients: int, shared_data: Path, cache: Path, tmp_path: Path
) -> None:
    config = load([
        "data=mimic4", f"data.root={shared_data / 'mimic-iv-demo-2.2'}", f"data.cache={cache}", f"system={name}",
        f"kg.path={shared_data / 'kg/primekg-subset/merged_kg_12col.csv.gz'}", f"run_dir={tmp_path / 'run'}",
        "model=smollm2", "scale=laptop", f"model.path={smollm2_folder()}", "env.history_tokens=300", *more,
    ])  # fmt: skip
    system = build(Records(config))
    policy = Short(HFEngine(*load_configured(config)), 0, config.env.decisions)
    stage = stage_of(system, system.variants[variant or system.main], config)
    cases = [*system.cases.test, *system.cases.train][:patients]
    replies: list[tuple[Act, Reply]] = [
        (record.effect, record.result)
        for episode in play(stage, cases, policy, seed=1, title=name)
        for record in episode.trace
        if isinstance(record.effect, Act) and isinstance(record.result, Reply)
    ]
    for act, reply in replies:
        print(f"\n[{act.role}] {reply.error or 'read'}\n{reply.text}")
    decisions = [reply for act, reply in replies if act.choices or act.options]
    assert len(decisions) >= patients and all(reply.error is None for reply in decisions)
    assert not any(GUARD in reply.text for act, reply in replies if act.role == "summarise")
