"""The reward of an episode that ends with a text: its likeness to a reference stands where a right label stands."""

from __future__ import annotations

from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward


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
