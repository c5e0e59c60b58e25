"""The reward of an episode that ends with a label, whatever it did before: R_orm of Eq. 15, GHAR."""

from __future__ import annotations

from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.terms import orm


def score_outcome(episode: Episode, label: int, eta: float) -> EpisodeReward:
    """η R_orm, at the last turn: right answer, readable answer, share of readable replies; 0 for an episode that
    failed or was cut short (`Episode.cut`), which has no outcome."""
    if episode.failure is not None or episode.cut or not episode.turns:
        return EpisodeReward({"orm": 0.0}, 0.0, tuple({} for _ in episode.turns), "shared")
    value = orm(episode, label)
    per_turn = (*({} for _ in episode.turns[1:]), {"orm": eta * value})
    return EpisodeReward({"orm": value}, eta * value, per_turn, "shared")
