"""A further reward term or metric for any system, from a module of the user's own (docs/extending.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ghar.envs.system import C, Reader, System
from ghar.episode import Episode
from ghar.errors import BadInput
from ghar.metrics.bootstrap import mean_interval
from ghar.metrics.policy import policy_summary
from ghar.rewards.compose import EpisodeReward

Term = Callable[[Episode, Any], float]
Metric = Callable[[Mapping[str, Any]], float | None]


def add_term(system: System[C], name: str, term: Term, weight: float = 1.0) -> System[C]:
    """Add `weight` times `term(episode, case)` to the reward of every finished episode, at its last turn.

    An episode that failed or was cut earns none of it. The term stands in reports and curves under `name`. BadInput
    for a weight of 0, or when an episode already has a term of this name.
    """
    if not weight:
        raise BadInput(f"The reward term {name} has the weight 0: leave it out.")

    def added(episode: Episode, case: C, reward: EpisodeReward) -> EpisodeReward:
        if name in reward.terms:
            raise BadInput(f"There is a reward term {name} already: choose another name.")
        if episode.failure is not None or episode.cut or not episode.turns:
            return replace(reward, terms={**reward.terms, name: 0.0})
        value = float(term(episode, case))
        last = {**reward.per_turn[-1], name: weight * value}
        total, turns = reward.total + weight * value, (*reward.per_turn[:-1], last)
        return replace(reward, terms={**reward.terms, name: value}, total=total, per_turn=turns)

    shaping, plain, read = system.shaping, system.reward, system.read_by
    if shaping is not None:
        shaped = shaping.reward
        shaping = replace(
            shaping, reward=lambda episode, case, *more: added(episode, case, shaped(episode, case, *more))
        )
    return replace(
        system,
        reward=lambda episode, case: added(episode, case, plain(episode, case)),
        shaping=shaping,
        read_by=lambda reader: add_term(read(reader), name, term, weight),
    )


def add_metric(system: System[C], name: str, metric: Metric) -> System[C]:
    """Add the mean of `metric(row)` over each variant's test episodes, with an interval over patients, to its numbers.

    metric: of a row of episodes/VARIANT.jsonl; None leaves the row out. The numbers of a variant list the names of such
    metrics under "own_metrics", for the report.
    """
    plain, read = system.numbers, system.read_by

    def numbers(rows: Sequence[Mapping[str, Any]], draw: dict[str, int]) -> dict[str, Any]:
        found = policy_summary(rows, system.task.labels, **draw) if plain is None else plain(rows, draw)
        if name in found:
            raise BadInput(f"There is a metric {name} already: choose another name.")
        values = [(value, row["subject_id"]) for row in rows if (value := metric(row)) is not None]
        own = {"own_metrics": {**found.get("own_metrics", {}), name: len(values)}}
        if not values:
            return {**found, **own, name: None}
        mean = mean_interval([v for v, _ in values], patients=[who for _, who in values], **draw)
        return {**found, **own, name: mean.as_list()}

    def reread(reader: Reader) -> System[C]:
        return add_metric(read(reader), name, metric)

    return replace(system, numbers=numbers, read_by=reread)
