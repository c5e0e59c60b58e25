"""The best accuracy that the contexts of the demo world allow, exactly: by what communities tell, and blind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ghar.envs.case import Case
from ghar.envs.kare.episode import KareReading
from ghar.envs.worlds.severity import story
from ghar.envs.worlds.severity_grades import Knowledge, reading_of


def law_of(task: str) -> np.ndarray | None:
    """P(label | highest grade), f64[10, labels]; None for a task whose labels the world draws otherwise."""
    if task == "los":
        return story.los_matrix()
    chance = {"kare_readmission": story.readmission_probability, "read": story.readmission_probability}.get(task)
    return None if chance is None else np.stack([1 - chance(), chance()], axis=1)


def kare_ceilings(
    law: np.ndarray, knowledge: Knowledge, cases: Sequence[Case[KareReading]], prompt_texts: Mapping[str, str]
) -> dict[str, float]:
    """Expected accuracy of whoever knows all common grades, reads without error, and answers the likeliest label.

    prompt_texts: sample id -> communities as the prompt shows them. "parametric" reads nothing. A rare grade that is
    nowhere is any of 1 to 9 alike.
    """
    read = [_likeliest(law, knowledge, case, prompt_texts[case.sample_id]) for case in cases]
    blind = [_likeliest(law, knowledge, case, "") for case in cases]
    return {"parametric": float(np.mean(blind)), "communities": float(np.mean(read))}


def _likeliest(law: np.ndarray, knowledge: Knowledge, case: Case[KareReading], text: str) -> float:
    common = knowledge.grades
    grades = [common[topic] if topic in common else reading_of(topic, text).grade for topic in case.topics]
    highest, open_ = max((g for g in grades if g is not None), default=0), grades.count(None)
    return float((highest_of(highest, open_) @ law).max())


def highest_of(highest: int, unknown: int) -> np.ndarray:
    """f64[10]: of the maximum of `highest` and of `unknown` more grades, each uniform over 1 to 9."""
    grades = np.arange(story.GRADES)
    at_most = np.where(grades >= highest, (grades / (story.GRADES - 1)) ** unknown, 0.0)
    return np.diff(at_most, prepend=0.0)
