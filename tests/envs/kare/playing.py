"""A small KARE, and its variants played by a policy."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from ghar.envs.case import Case
from ghar.envs.kare.episode import KareReading
from ghar.envs.records import Records
from ghar.envs.rollout import EpisodeJob, rollout
from ghar.envs.system import System, Variant, build
from ghar.episode import Episode
from ghar.launch.entry import load
from ghar.llm.policy import Policy
from ghar.trainers.rows import rows_of

TINY = (
    "+experiment=kare_demo", "task=kare_readmission", "system.tasks=multitask", "data.patients=60",
    "system.leiden_runs=5", "task.max_test=4", "eval.bootstrap=20",
)  # fmt: skip


def built(*overrides: str) -> System[KareReading]:
    return build(Records(load(overrides)))


def played(
    system: System[KareReading], variant: Variant, policy: Policy, cases: Sequence[Case[KareReading]] | None = None
) -> list[Episode]:
    jobs = [
        EpisodeJob(case.sample_id, 0, partial(system.episode, case, variant)) for case in cases or system.cases.test
    ]
    return rollout(jobs, {"top": policy}, system.corpus, seed=0, in_flight=64)


def rows_as_reported(system: System[KareReading], name: str) -> list[dict[str, Any]]:
    """Rows of a variant that a fixed rule plays."""
    variant, cases = system.variant(name), system.cases.test
    episodes = played(system, variant, system.fixed[variant.who]())
    rewards = [system.reward(episode, case) for episode, case in zip(episodes, cases, strict=True)]
    return rows_of(system, variant, cases, episodes, rewards, "test")
