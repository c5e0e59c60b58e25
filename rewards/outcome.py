"""The reward of an episode that ends with a label, whatever it did before: R_orm of Eq. 15, GHAR. Where it ends with a
text, the likeness to a reference stands where a right label stands."""

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


def with_likeness(reward: EpisodeReward, episode: Episode, likeness: float, eta: float) -> EpisodeReward:
    """`reward`, which counts any readable text as right (R_orm, Eq. 15, GHAR), with `likeness` for 1.

    likeness: of the text to its reference, in [0, 1]. eta: weight of the outcome in `reward`. Unchanged for an episode
    that failed, was cut short or wrote nothing.
    """
    if episode.failure is not None or episode.cut or not episode.turns or episode.prediction.label is None:
        return reward
    less = 1.0 - likeness
    turns = tuple({**turn, "orm": turn["orm"] - eta * less} if "orm" in turn else turn for turn in reward.per_turn)
    terms = {**reward.terms, "orm": reward.terms["orm"] - less}
    return EpisodeReward(terms, reward.total - eta * less, turns, reward.composition)
