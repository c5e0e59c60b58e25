"""Reward retrieval where the rows that tell the label are given: outcome + evidence recall - cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome


@dataclass(frozen=True)
class EvidenceRecall:
    """turn: index of the turn that asked for a look-up, None where no one was asked. recall: of the evidence, what it
    was the first to show, from 0 to 1."""

    turn: int | None
    recall: float


def score_evidence(
    episode: Episode, label: int, eta: float, gains: Sequence[EvidenceRecall], *, recall: float, cost: float
) -> EpisodeReward:
    """η R_orm at the last turn, and at the turn that asked for a look-up what it brought, `recall` a whole evidence,
    less `cost` each.

    A look-up that no one was asked about costs nothing, and what it brought counts at the last turn. An episode that
    failed or was cut short has no outcome and is worth 0, as in `score_outcome`.
    """
    outcome = score_outcome(episode, label, eta)
    if episode.failure is not None or episode.cut or not episode.turns:
        return EpisodeReward({**outcome.terms, "recall": 0.0, "cost": 0.0}, 0.0, outcome.per_turn, outcome.composition)
    per_turn = [dict(turn) for turn in outcome.per_turn]
    for one in gains:
        turn = per_turn[-1 if one.turn is None else one.turn]
        turn["recall"] = turn.get("recall", 0.0) + recall * one.recall
        if one.turn is not None:
            turn["cost"] = turn.get("cost", 0.0) - cost
    asked = sum(one.turn is not None for one in gains)
    terms = {**outcome.terms, "recall": sum(one.recall for one in gains), "cost": -float(asked)}
    return EpisodeReward(terms, sum(sum(turn.values()) for turn in per_turn), tuple(per_turn), outcome.composition)
