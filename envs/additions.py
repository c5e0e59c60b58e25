"""A further reward term or metric for any system, from a module of the user's own (docs/extending.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from ghar.envs.case import Case, R
from ghar.envs.system import System
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.metrics.bootstrap import mean_interval
from ghar.metrics.policy import policy_summary
from ghar.rewards.compose import EpisodeReward

Term = Callable[[Episode, Any], float]
Metric = Callable[[Mapping[str, Any]], float | None]


def add_term(system: System[R], name: str, term: Term, weight: float = 1.0) -> System[R]:
    """Add `weight` times `term(episode, case)` to the reward of every finished episode, at its last turn.

    An episode that failed or was cut earns none of it. The term stands in reports and curves under `name`. BadInput
    for a weight of 0, or when an episode already has a term of this name.
    """
    if not weight:
        raise BadInput(f"The reward term {name} has the weight 0: leave it out.")

    def added(episode: Episode, case: Case[R], reward: EpisodeReward) -> EpisodeReward:
        if name in reward.terms:
            raise BadInput(f"There is a reward term {name} already: choose another name.")
        if episode.failure is not None or episode.cut or not episode.turns:
            return replace(reward, terms={**reward.terms, name: 0.0})
        value = float(term(episode, case))
        last = {**reward.per_turn[-1], name: weight * value}
        total, turns = reward.total + weight * value, (*reward.per_turn[:-1], last)
        return replace(reward, terms={**reward.terms, name: value}, total=total, per_turn=turns)

    def with_term(own: System[R]) -> System[R]:
        shaping = own.training.shaping
        if shaping is not None:
            shaped = shaping.reward
            shaping = replace(
                shaping, reward=lambda episode, case, *more: added(episode, case, shaped(episode, case, *more))
            )
        return replace(
            own,
            reward=lambda episode, case: added(episode, case, own.reward(episode, case)),
            training=replace(own.training, shaping=shaping),
        )

    return system.adapt(with_term)


def add_metric(system: System[R], name: str, metric: Metric) -> System[R]:
    """Add the mean of `metric(row)` over each variant's test episodes, with an interval over patients, to its numbers.

    metric: of a row of episodes/VARIANT.jsonl; None leaves the row out. The numbers of a variant list the names of such
    metrics under "own_metrics", for the report.
    """

    def with_metric(own: System[R]) -> System[R]:
        return replace(own, report=replace(own.report, numbers=partial(numbers, own)))

    def numbers(own: System[R], rows: Sequence[Mapping[str, Any]], draw: dict[str, int]) -> dict[str, Any]:
        plain = own.report.numbers
        summary = policy_summary(rows, own.task.labels, **draw) if plain is None else plain(rows, draw)
        if name in summary:
            raise BadInput(f"There is a metric {name} already: choose another name.")
        values = [(value, row["subject_id"]) for row in rows if (value := metric(row)) is not None]
        counted = {"own_metrics": {**summary.get("own_metrics", {}), name: len(values)}}
        if not values:
            return {**summary, **counted, name: None}
        mean = mean_interval([v for v, _ in values], patients=[who for _, who in values], **draw)
        return {**summary, **counted, name: mean.as_list()}

    return system.adapt(with_metric)
