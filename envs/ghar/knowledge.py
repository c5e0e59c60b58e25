"""What is true in the demo world, in a teacher's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from envs.ghar.teacher import Habits, Knowledge
from ghar.data.demo import story
from ghar.data.demo.world import World

NO_ERROR = Habits(flip=0.0, stray_path=0.0, missed_path=0.0, go_on=0.0, disorder=0.0, guess=0.0)
# highest grade from which a task's positive label is the more probable; the next visit's death does not follow from it
POSITIVE_FROM = {
    "dec": story.DEATH_FROM_ACUITY,
    "read": story.READ_FROM_ACUITY,
    "kare_readmission": story.READ_FROM_ACUITY,
    "kare_mortality": story.GRADES,
}
RELATIONS = {"disease": "disease_phenotype_positive", "drug": "drug_effect"}


def topic_of(code: str, name: str) -> str:
    """How a sub-query names a code."""
    return f"{'drug' if code.startswith('DRUG/') else 'disease'} {name}"


def label_rule(task: str) -> Callable[[int], int]:
    """The label index that the highest grade of a visit makes most probable in the demo world."""
    return LabelRule(POSITIVE_FROM.get(task))


@dataclass(frozen=True)
class LabelRule:
    """The grade itself, or whether it is high enough."""

    threshold: int | None

    def __call__(self, grade: int) -> int:
        return grade if self.threshold is None else int(grade >= self.threshold)


def exact_knowledge(world: World, names: Mapping[str, str], task: str) -> Knowledge:
    """The true grade of every common entity and of no rare one."""
    grades = {
        topic_of(code, names[code]): world.severity[code]
        for code, tier in world.tier.items()
        if tier == "common" and code in names
    }
    return Knowledge(grades, RELATIONS, label_rule(task))
