"""The reward of an episode that ends with a text: its likeness to a reference stands where a right label stands."""

from __future__ import annotations

from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward


def with_likeness(found: EpisodeReward, episode: Episode, likeness: float, eta: float) -> EpisodeReward:
    """`found`, which counts any readable text as right (R_orm, Eq. 15, GHAR), with `likeness` for 1.

    likeness: of the text to its reference, in [0, 1]. eta: weight of the outcome in `found`. Unchanged for an episode
    that failed, was cut short or wrote nothing.
    """
    if episode.failure is not None or episode.cut or not episode.turns or episode.prediction.label is None:
        return found
    less = 1.0 - likeness
    turns = tuple({**turn, "orm": turn["orm"] - eta * less} if "orm" in turn else turn for turn in found.per_turn)
    terms = {**found.terms, "orm": found.terms["orm"] - less}
    return EpisodeReward(terms, found.total - eta * less, turns, found.composition)
