"""The reward of an answer that is a set of options (DischargeQA): R_orm of Eq. 15, GHAR, with sets."""

from __future__ import annotations

from ghar.envs.exprag.numbers import set_scores
from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward


def score_options(episode: Episode, answer: int, eta: float) -> EpisodeReward:
    """η (F1 of the chosen options + I(readable answer) + share of readable replies), at the last turn.

    F1 stands where Eq. 15 has I(y, ŷ): with one option to choose both are the same, and with many it tells how near an
    answer was. answer: the right options as a whole number, bit i for option i. An episode that failed or was cut
    short (`Episode.cut`) is worth 0.
    """
    if episode.failure is not None or episode.cut:
        return EpisodeReward({"f1": 0.0, "format": 0.0}, 0.0, tuple({} for _ in episode.turns), "shared")
    chosen = episode.prediction.label
    readable = sum(turn.format_ok for turn in episode.turns) / len(episode.turns)
    terms = {"f1": set_scores(answer, chosen)["f1"], "format": float(chosen is not None) + readable}
    closing = {term: eta * value for term, value in terms.items()}
    per_turn = (*({} for _ in episode.turns[1:]), closing)
    return EpisodeReward(terms, sum(closing.values()), per_turn, "shared")
