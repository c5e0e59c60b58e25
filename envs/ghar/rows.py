"""What GHAR adds to a row of episodes/*.jsonl and to the numbers of a variant: how its sub-queries and ids are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ghar.envs.case import Case
from ghar.envs.ghar.grounding import NameMatcher, queries, ungrounded
from ghar.envs.ghar.source_usage import AskedSources
from ghar.envs.system import Variant
from ghar.episode import Act, Episode, ReasoningStep, Reply
from ghar.metrics.bootstrap import ratio_interval
from ghar.metrics.policy import policy_summary
from ghar.metrics.rows import patients_of
from ghar.rewards.compose import WRITING

RATES = {"ungrounded": "sub_queries", "repeated_ids": "ids"}  # a share of what


@dataclass(frozen=True, eq=False)
class GharRows:
    """Reads episodes. labels: of the task. tail: sub-query -> look-ups that its grade takes, of a generated world.
    asked: which sources are asked, where there are several."""

    names: NameMatcher
    labels: tuple[str, ...]
    tail: Mapping[str, int] | None = None
    asked: AskedSources | None = None

    def row(self, episode: Episode, case: Case, variant: Variant) -> dict[str, Any]:
        """sub_queries: how many were written; ungrounded: those that name what no one had spoken of; ids: how many
        meta-paths look-ups named; repeated_ids: those that repeat another of their look-up. Of a generated patient
        look_ups: how many the visit needs; decisions: (needed, made) of each step."""
        written: list[str] = []
        strange: list[str] = []
        for record in episode.trace:
            if isinstance(record.effect, Act) and isinstance(record.result, Reply) and record.effect.role in WRITING:
                written += queries(record.result)
                strange += ungrounded(self.names, record.effect, record.result)
        steps = episode.prediction.history
        return (
            {
                "sub_queries": len(written),
                "ungrounded": strange,
                "ids": sum(len(step.paths) + step.path_errors + step.path_duplicates for step in steps),
                "repeated_ids": sum(step.path_duplicates for step in steps),
            }
            | self._look_ups(case, steps)
            | (self.asked.row(steps, case.visit_id) if self.asked else {})
        )

    def _look_ups(self, case: Case, steps: Sequence[ReasoningStep]) -> dict[str, Any]:
        tail = self.tail
        if tail is None:
            return {}
        needed = sum(tail[topic] for topic in case.topics if topic in tail)
        return {"look_ups": needed, "decisions": [(step.query in tail, step.retrieved) for step in steps]}

    def numbers(self, rows: Sequence[Mapping[str, Any]], draw: dict[str, int]) -> dict[str, Any]:
        """`policy_summary`, "ungrounded" (share of sub-queries) and "repeated_ids" (share of ids), where there are
        any."""
        numbers = policy_summary(rows, self.labels, **draw)
        for rate, whole in RATES.items():
            some = [row.get(rate, 0) for row in rows]
            counts = [len(value) if isinstance(value, list) else value for value in some]
            sizes, who = [row.get(whole, 0) for row in rows], patients_of(rows)
            share = ratio_interval(counts, sizes, patients=who, seed=draw["seed"], resamples=draw["resamples"])
            if share is not None:
                numbers[rate] = share.as_list()
        return numbers | (self.asked.numbers(rows, draw) if self.asked else {})
