"""A made-up run folder: a whole run, and rows to build broken ones from."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ghar.metrics import report
from ghar.metrics.policy import compare, eval_metrics, policy_summary
from ghar.metrics.runfolder import RunFolder

LABELS = ("under 1 day", "1 day", *(f"{d} days" for d in range(2, 8)), "1 to 2 weeks", "over 2 weeks")
# policy -> chance to be right on a patient who (needs no retrieval, needs it), retrieval habits on the same two
HABITS = {
    "llm_only": ((0.92, 0.35), (0.0, 0.0)),
    "always_rag": ((0.90, 0.88), (1.0, 1.0)),
    "scripted": ((0.93, 0.90), (0.10, 0.92)),
    "ghar_sft": ((0.88, 0.80), (0.25, 0.80)),
    "ghar_rl": ((0.92, 0.90), (0.06, 0.95)),
}
PATIENT = """Female, 67 years
Visit 1 (2014-03-02): heart failure, unspecified; type 2 diabetes mellitus; metoprolol tartrate; furosemide
Visit 2 (2016-09-19): acute kidney injury; pneumonia; vancomycin; non-invasive ventilation
Admitted 2016-12-01 to MICU."""
EVIDENCE = "amyloidosis - associated with - severity high\nheart failure - indication - metoprolol"


def make_turns(row: dict[str, Any], rng: np.random.Generator) -> list[dict[str, Any]]:
    """The turns of one episode in GHAR's order."""
    turns = [_turn("top", "rewrite", 0, "severity of amyloidosis; severity of heart failure; recent decline")]
    for step in range(row["iterations"]):
        retrieve = row["retrieved"] and step == 0
        turns.append(_turn("top", "retrieve", step, "yes" if retrieve else "no"))
        if retrieve:
            ids = "3, 11" if rng.random() > 0.1 else "eleven please"
            turns.append(_turn("top", "metapaths", step, ids, ids[0] == "3", EVIDENCE))
            turns.append(_turn("low", "summarise", step, "Amyloidosis has high severity; expect a long stay."))
        else:
            turns.append(_turn("low", "answer", step, "Heart failure is of medium severity."))
        turns.append(_turn("top", "continue", step, "stop" if step + 1 == row["iterations"] else "go on"))
    return [*turns, _turn("low", "predict", row["iterations"], row["prediction"] or "I would rather not say")]


def _turn(agent: str, role: str, step: int, reply: str, ok: bool = True, evidence: str | None = None) -> dict[str, Any]:
    prompt = f"Task: length of stay.\n{PATIENT}\n\nYou are agent {agent}. Decide: {role}.\n" + "History: none.\n" * 6
    return {"agent": agent, "role": role, "step": step, "prompt": prompt, "reply": reply, "format_ok": ok,
            "evidence": evidence}  # fmt: skip


def make_rows(policy: str, n: int, seed: int = 0) -> list[dict[str, Any]]:
    """Episode rows of one policy on `n` stays, two a patient; the stays are the same for every policy."""
    patients = np.random.default_rng(99)
    rng = np.random.default_rng([seed, *policy.encode()])
    right, habit = HABITS[policy]
    rows = []
    for i in range(n):
        label, needs = int(patients.integers(len(LABELS))), bool(patients.random() < 0.45)
        correct = bool(rng.random() < right[needs])
        wrong = None if rng.random() < 0.1 else LABELS[(label + int(rng.integers(1, 4))) % len(LABELS)]
        retrieved = bool(rng.random() < habit[needs])
        iterations = int(rng.integers(1, 4))
        rewards = {"orm": float(correct), "reason": rng.normal(0.6, 0.1), "rel": 0.4 * retrieved,
                   "cost": -0.1 * retrieved * iterations, "path": 0.2 * retrieved}  # fmt: skip
        row: dict[str, Any] = {
            "policy": policy, "split": "test", "sample_id": f"p{i:04d}", "subject_id": i // 2, "patient": PATIENT,
            "label": LABELS[label], "prediction": LABELS[label] if correct else wrong, "correct": correct,
            "needs_retrieval": needs, "retrieved": retrieved, "iterations": iterations,
            "prompt_tokens": 300 * iterations + 400 * retrieved,
            "completion_tokens": 20 * iterations, "seconds": 0.05 * iterations + 0.1 * retrieved, "rewards": rewards,
            "reward": sum(rewards.values()), "failure": None,
        }  # fmt: skip
        rows.append(row | {"turns": make_turns(row, rng)})
    return rows


def make_metrics() -> list[dict[str, Any]]:
    """Rows of metrics.jsonl: facts, warm-up, then 40 updates of RL with an evaluation every fifth."""
    rng = np.random.default_rng(3)
    rows: list[dict[str, Any]] = [
        {"step": s, "phase": phase, "train/loss": 2.0 * np.exp(-s / 60) + 0.2 + rng.normal(0, 0.03)}
        for phase in ("base", "sft")
        for s in range(0, 200, 10)
    ]
    for step in range(0, 41):
        done = 1 - np.exp(-step / 12)
        row: dict[str, Any] = {"step": step, "phase": "rl"}
        for term, start, gain in (("orm", 0.8, 0.1), ("reason", 0.5, 0.2), ("rel", 0.2, 0.1), ("cost", -0.3, 0.2)):
            row[f"train/reward/{term}"] = start + gain * done + rng.normal(0, 0.02)
        for agent in ("top", "low"):
            row[f"train/approx_kl/{agent}"] = abs(rng.normal(0.01, 0.004))
            row[f"train/clipfrac/{agent}"] = abs(rng.normal(0.1, 0.03))
            row[f"train/explained_variance/{agent}"] = 0.8 * done + rng.normal(0, 0.05) if step else float("nan")
            row[f"train/entropy/{agent}"] = 0.9 - 0.5 * done + rng.normal(0, 0.02)
        if step % 5 == 0:
            values = {"reward": 1.1 + 0.5 * done, "accuracy": 0.84 + 0.07 * done, "when_f1": 0.75 + 0.18 * done,
                      "when_precision": 0.72 + 0.2 * done, "when_recall": 0.8 + 0.14 * done,
                      "retrieval_rate": 0.5 - 0.04 * done}  # fmt: skip
            row |= eval_metrics({k: [v + rng.normal(0, 0.01), v - 0.03, v + 0.03] for k, v in values.items()})
        rows.append(row | {"time/rollout": 8.0 + rng.random()})
    return rows


def make_summary(episodes: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    pairs = [(a, b) for a, b in (("ghar_rl", "ghar_sft"), ("ghar_rl", "llm_only"), ("ghar_rl", "always_rag"))]
    return {
        "generated": True, "scale": "demo", "experiment": "mimic4_los", "seed": 0,
        "task": {"name": "length of stay", "labels": list(LABELS)},
        "ceilings": {"parametric": 0.67, "retrieval": 0.95, "memory": 0.93},
        "data": {"patients": 2000, "visits": 5210, "train": 1200, "validation": 400, "test": 400, "kg_edges": 20650},
        "policies": {name: policy_summary(rows, LABELS, resamples=200) for name, rows in episodes.items()},
        "differences": {f"{a} - {b}": compare(episodes[a], episodes[b], resamples=200) for a, b in pairs},
        "time": {"data": 11.0, "base": 140.2, "sft": 95.0, "rl": 430.0, "evaluation": 61.3}, "memory_gb": 3.4,
        "commit": "38d7095",
    }  # fmt: skip


@pytest.fixture(scope="package", autouse=True)
def each_chart_is_drawn_once() -> Iterator[None]:
    """Most reports of these tests show the same curves, and the same data give the same bytes (test_figure.py): drawing
    them is nine tenths of a report."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("line_chart", "dot_chart"):
            patch.setattr(report, name, _once(getattr(report, name)))
        yield


def _once(draw: Callable[..., str]) -> Callable[..., str]:
    drawn: dict[str, str] = {}

    def chart(*data: Any, **names: Any) -> str:
        key = repr((data, names))
        if key not in drawn:
            drawn[key] = draw(*data, **names)
        return drawn[key]

    return chart


@pytest.fixture(scope="session")
def episodes() -> dict[str, list[dict[str, Any]]]:
    return {policy: make_rows(policy, 60) for policy in HABITS}


@pytest.fixture
def whole_run(tmp_path: Path, episodes: dict[str, list[dict[str, Any]]]) -> RunFolder:
    """A run folder with everything in it."""
    return build_run(tmp_path / "run", episodes)


def build_run(path: Path, episodes: dict[str, list[dict[str, Any]]]) -> RunFolder:
    folder = RunFolder.open(path)
    folder.write_config("seed: 0\nscale: demo\ntrainer:\n  lr: 1.0e-4\n")
    for row in make_metrics():
        folder.log(row)
    for name, rows in episodes.items():
        folder.write_episodes(name, rows)
    folder.write_summary(make_summary(episodes))
    return folder
