"""A small KARE, and its variants played by a policy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from envs.kare.episode import KareCase
from envs.records import Records
from envs.rollout import Job, rollout
from envs.system import System, Variant, build
from ghar.episode import Episode
from ghar.llm.policy import Policy
from launch.entry import load

TINY = (
    "+experiment=kare_demo", "data.patients=60", "system.leiden_runs=5", "task.max_test=4", "eval.bootstrap=20",
)  # fmt: skip


def built(*overrides: str) -> System[KareCase]:
    return build(Records(load(overrides)))


def played(
    system: System[KareCase], variant: Variant, policy: Policy, cases: Sequence[KareCase] | None = None
) -> list[Episode]:
    cases = system.cases.test if cases is None else cases
    jobs = [Job(case.sample_id, 0, partial(system.episode, case, variant)) for case in cases]
    return rollout(jobs, {"top": policy}, system.corpus, seed=0, in_flight=64)


def rows_of(system: System[KareCase], name: str) -> list[dict[str, Any]]:
    """Rows of a variant that a fixed rule plays: what every system has in them, as far as numbers need it, and what
    KARE adds."""
    variant, labels = system.variant(name), system.task.labels
    found = []
    for case, episode in zip(system.cases.test, played(system, variant, system.fixed[variant.who]()), strict=True):
        label, reward = episode.prediction.label, system.reward(episode, case)
        found.append({
            "policy": name, "sample_id": case.sample_id, "subject_id": case.subject_id, "label": labels[case.label],
            "prediction": None if label is None else labels[label], "correct": label == case.label,
            "label_probabilities": None, "needs_retrieval": None, "iterations": 1, "reward": reward.total,
            "prompt_tokens": 0, "completion_tokens": 0, "seconds": 0.0, "failure": None, "errors": [],
            "turns": [{"format_ok": turn.format_ok} for turn in episode.turns],
        } | system.row(episode, case, variant))  # fmt: skip
    return found
