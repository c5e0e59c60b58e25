"""EHR-RAG plays today what it played at commit a156ecb: golden_ehr_rag.json holds episodes of fixed seeds from there.

Today's variants scripted_<method> were the methods then, answered by the same rule. A variant with a key "since" was
recorded later; the key says why.
"""

from __future__ import annotations

import hashlib
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from envs.ehr_rag.baselines import LINEAR, Regressions
from envs.records import Records
from envs.rollout import Job, rollout
from envs.system import System, build
from ghar.episode import Act, Episode, Record
from launch.entry import load

GOLDEN = json.loads(Path(__file__).with_name("golden_ehr_rag.json").read_text())
OVERRIDES = (
    "system=ehr_rag", "data=demo", "system.chunk_rows=8", "system.chunk_overlap=2", "system.candidates=30",
    "system.chunks=2", "system.rows=40", "system.tokens=2000", "task.max_test=12",
)  # fmt: skip
PATIENTS = {"guo_los": 300, "lab_anemia": 150}
GROUPS = {group["task"]: group for group in GOLDEN["groups"]}
NAMES = [(task, name) for task, group in GROUPS.items() for name in group["variants"]]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("golden-ehr-rag")


@pytest.fixture(scope="module")
def systems(cache: Path) -> dict[str, System[Any]]:
    def made(task: str) -> System[Any]:
        own = (f"task={task}", f"data.patients={PATIENTS[task]}", f"data.cache={cache}")
        return build(Records(load([*OVERRIDES, *own])))

    return {task: made(task) for task in GROUPS}


def play(system: System[Any], name: str) -> list[Episode]:
    variant = system.variant(name)
    jobs = [Job(case.sample_id, 0, partial(system.episode, case, variant)) for case in system.cases.test]
    policies = {} if not variant.who else dict.fromkeys(system.agents, system.fixed[variant.who]())
    return rollout(jobs, policies, system.corpus, seed=0, in_flight=64, steady=True)


def digest(value: Any) -> str:
    return hashlib.sha256(
        json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def fingerprint(episode: Episode) -> list[Any]:
    return [_act(record) if isinstance(record.effect, Act) else _looked_up(record) for record in episode.trace]


def _act(record: Any) -> list[Any]:
    act = record.effect
    return [act.agent, act.role, act.prompt, list(act.choices), act.step, record.result.text]


def _looked_up(record: Record) -> list[Any]:
    ask: Any = record.effect
    passages: Any = record.result
    found = [[p.text, rounded(p.score, 6), int(p.ident)] for p in passages.passages]
    return [ask.query, None, int(ask.top_n), found]


def rounded(value: float, digits: int) -> float:
    return round(float(value), digits) + 0.0


def columns(system: System[Any], name: str) -> dict[str, Any]:
    """What golden_ehr_rag.json has of a variant."""
    episodes, cases = play(system, name), system.cases.test
    rewards = [system.reward(episode, case) for episode, case in zip(episodes, cases, strict=True)]
    terms = sorted({term for reward in rewards for term in reward.terms})
    digests = [digest(fingerprint(episode)) for episode in episodes]
    return {
        "predictions": [episode.prediction.label for episode in episodes],
        "rewards": [rounded(reward.total, 9) for reward in rewards],
        "terms": {term: [rounded(reward.terms[term], 9) for reward in rewards] for term in terms},
        "turns": [len(episode.turns) for episode in episodes],
        "steps": [len(episode.prediction.history) for episode in episodes],
        "episodes": [one[:8] for one in digests],
        "sha256": hashlib.sha256("\n".join(digests).encode()).hexdigest(),
    }


@pytest.mark.parametrize("task, name", [(task, name) for task, name in NAMES if name not in LINEAR])
def test_the_rule_plays_every_method_as_before(systems: dict[str, System[Any]], task: str, name: str) -> None:
    expected = dict(GROUPS[task]["variants"][name])
    assert [case.sample_id for case in systems[task].cases.test] == GROUPS[task]["samples"]
    found = columns(systems[task], "scripted" if name == "ehr_rag" else f"scripted_{name}")
    assert found == {key: value for key, value in expected.items() if key not in ("overrides", "since")}


@pytest.mark.parametrize("task", GROUPS)
def test_the_regression_predicts_as_before(systems: dict[str, System[Any]], task: str) -> None:
    system, expected = systems[task], GROUPS[task]["variants"]["counts"]
    episodes = play(system, "counts")
    assert [episode.prediction.label for episode in episodes] == expected["predictions"]
    fitted: Regressions = system.episode.__self__.fitted  # type: ignore[attr-defined]
    found = fitted.fitted("counts")
    rows = [found.row_of[case.sample_id] for case in system.cases.test]
    labels = {shots: shares[rows].argmax(axis=1).tolist() for shots, shares in found.shares.items()}
    assert {shots: guess for shots, guess in labels.items() if shots != "all"} == expected["by_shots"]
    shares = [episode.prediction.probabilities for episode in episodes]
    assert all(share is not None and sum(share) == pytest.approx(1) for share in shares)
