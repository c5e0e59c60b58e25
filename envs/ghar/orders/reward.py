"""The reward of an order: a right answer that names a contraindicating condition, less the price of every search."""

from __future__ import annotations

from ghar.data.tasks.order_check import OrderQuestion
from ghar.envs.ghar.orders.episode import named_condition
from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward

UNNAMED = 0.5  # of a yes that is right and names another condition


def score_order(episode: Episode, question: OrderQuestion, eta: float, price: float) -> EpisodeReward:
    """Score an episode: eta x outcome at the last turn, -price where a search names its partition.

    The outcome is 1 for a right no and for a yes that names a condition against the drug, 0.5 for a right yes that
    names another one, else 0: without knowledge neither answer earns more. A failed episode is worth 0, and one that
    was cut short (`Episode.cut`) has paid and earned nothing yet.
    """
    if episode.failure is not None:
        return EpisodeReward({"orm": 0.0, "price": 0.0}, 0.0, tuple({} for _ in episode.turns), "shared")
    per_turn: list[dict[str, float]] = [
        {"price": -price} if turn.role == "metapaths" else {} for turn in episode.turns
    ]
    outcome = 0.0
    if not episode.cut and episode.prediction.label == question.label:
        named = named_condition(episode) or 0
        outcome = 1.0 if not question.against or named - 1 in question.against else UNNAMED
    if not episode.cut:
        per_turn[-1] |= {"orm": eta * outcome}
    paid = sum(turn.get("price", 0.0) for turn in per_turn)
    earned = eta * outcome
    return EpisodeReward({"orm": outcome, "price": paid}, earned + paid, tuple(per_turn), "shared")
