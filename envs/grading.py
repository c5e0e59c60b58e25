"""What the registered environments pay: a constant reply earns nothing, a right one the weight of the outcome.

The papers' outcome reward (R_orm, Eq. 15, GHAR) pays a readable wrong answer two thirds of a right one, so that one
reply to everybody earns 10.8 of GHAR's 15 and 13.7 of KARE's. That suits a policy that must learn a format first; it is
no score. Here the outcome is (s - b) / (1 - b), where s is 1 for a right label (F1 for a set of options) and b what the
best constant answer gets on these cases, less the share of unreadable replies; an unreadable answer is worth -1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Literal

from ghar.data.tasks.splits import split_by_patient
from ghar.envs.stepper import Scene
from ghar.episode import Episode
from ghar.rewards.compose import EpisodeReward

Split = Literal["train", "valid", "test"]
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
OUTCOME = ("orm", "f1", "format")  # terms that stand for the outcome
Score = Callable[[Any, int | None], float]  # case, answer -> 0 to 1


def cases_of(scene: Scene, split: str | None) -> Scene:
    """The scene on one part of its cases, 6:2:2 by patient; None keeps all. ValueError for another part."""
    if split is None:
        return scene
    if split not in SPLITS:
        raise ValueError(f"split={split!r}: choose among {', '.join(SPLITS)}, or None for all cases.")
    cases = scene.cases
    if all(hasattr(case, "subject_id") for case in cases):
        return replace(scene, cases=getattr(split_by_patient(cases), split))
    first, second = round(0.6 * len(cases)), round(0.8 * len(cases))
    parts = {"train": cases[:first], "valid": cases[first:second], "test": cases[second:]}
    return replace(scene, cases=parts[split])


def balanced(cases: Sequence[Any]) -> list[Any]:
    """The cases, those of rarer labels several times, so that a case drawn at random has each label as often."""
    by_label: dict[int, list[Any]] = {}
    for case in cases:
        by_label.setdefault(case.label, []).append(case)
    most = max(map(len, by_label.values()))
    return [own[i % len(own)] for i in range(most) for _, own in sorted(by_label.items())]


def graded(scene: Scene, score: Score, baseline: float, eta: float) -> Scene:
    """The scene with the outcome's reward as above, times `eta`; its other terms stay. baseline: b, below 1."""
    reward = scene.reward

    def pay(episode: Episode, case: Any) -> EpisodeReward:
        return _graded(reward(episode, case), episode, score(case, episode.prediction.label), baseline, eta)

    return replace(scene, reward=pay)


def _graded(reward: EpisodeReward, episode: Episode, score: float, baseline: float, eta: float) -> EpisodeReward:
    if episode.failure is not None or episode.cut or not episode.turns:
        return reward
    unreadable = 1 - sum(turn.format_ok for turn in episode.turns) / len(episode.turns)
    value = (score - baseline) / (1 - baseline) if episode.prediction.label is not None else -1.0
    value -= unreadable
    turns = [{term: own for term, own in turn.items() if term not in OUTCOME} for turn in reward.per_turn]
    at = max(i for i, turn in enumerate(reward.per_turn) if set(turn) & set(OUTCOME))
    turns[at]["orm"] = eta * value
    terms = {term: own for term, own in reward.terms.items() if term not in OUTCOME} | {"orm": value}
    return EpisodeReward(terms, sum(sum(turn.values()) for turn in turns), tuple(turns), reward.composition)


def right_label(case: Any, answer: int | None) -> float:
    """1 for the case's label."""
    return float(answer == case.label)


def best_constant(cases: Sequence[Any], answers: Sequence[int], score: Score) -> float:
    """The mean score of the one answer that does best for all cases."""
    return max(sum(score(case, answer) for case in cases) / len(cases) for answer in answers)
