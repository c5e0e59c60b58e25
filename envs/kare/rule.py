"""A fixed rule in KARE's place, to see what the retrieved knowledge is worth: the highest grade decides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from envs.case import topics_of
from envs.kare.corpus import Names
from envs.kare.episode import KareCase, join_both
from envs.records import Records
from envs.worlds.grades import (
    POSITIVE_FROM,
    RELATIONS,
    Knowledge,
    SpreadRule,
    exact_knowledge,
    finding,
    follows,
    reading_of,
)
from envs.worlds.severity import story
from envs.worlds.severity.world import World
from ghar.episode import Act, Completion


class GradeRule:
    """Knows some grades, as `knowledge` says, and reads the others in what was looked up; what no one grades is 0.

    In the demo world, where outcomes follow from the highest grade, its accuracy says how much of what is needed was
    retrieved. It reads a case's topics and never its label.
    """

    def __init__(self, knowledge: Knowledge):
        self.knowledge = knowledge

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self._reply(act.role, act.facts["case"], act.facts["knowledge"])) for act in acts]

    def _reply(self, role: str, case: KareCase, context: str) -> str:
        known = self.knowledge.grades
        grades = {
            topic: known[topic] if topic in known else reading_of(topic, context).grade
            for topic in case.topics
        }
        highest = max((grade for grade in grades.values() if grade is not None), default=0)
        label = case.task.labels[self.knowledge.label_of(highest)]
        chain = "; ".join(finding(topic, grade) for topic, grade in grades.items()) or "nothing recorded"
        return {"reason": chain, "predict": label, "both": join_both(chain, label)}[role]


@dataclass(frozen=True)
class Belief:
    """What fixed rules know. threshold: highest grade from which the second of two labels is the more probable; None
    where labels do not follow so."""

    knowledge: Knowledge
    threshold: int | None


@dataclass(frozen=True)
class Seen:
    """A training patient as a rule learns from it."""

    topics: Sequence[str]
    label: int


def belief(records: Records) -> Belief:
    """What the rules know of the task of `records`."""
    name_of = Names(records.names)
    seen = [Seen(topics_of(sample, name_of), sample.label) for sample in records.splits.train]
    return rule_belief(records.world, name_of.of_all, records.config.task.name, len(records.task.labels), seen)


def rule_belief(world: World | None, names: Mapping[str, str], task: str, labels: int, seen: Sequence[Seen]) -> Belief:
    """In the demo world (`world`) the true grades of common entities. For real patients, where no truth is at hand, and
    for tasks whose labels do not follow from grades: a grade 0 to 9 by the mean label of the training patients with a
    topic.

    task: as in conf/task. labels: how many it has.
    """
    if world is not None and follows(task):
        return Belief(exact_knowledge(world, names, task), POSITIVE_FROM.get(task))
    of_topic: dict[str, list[int]] = {}
    for one in seen:
        for topic in one.topics:
            of_topic.setdefault(topic, []).append(one.label)
    top, most = labels - 1, story.GRADES - 1
    grades = {topic: round(float(np.mean(found)) * most / top) for topic, found in of_topic.items()}
    return Belief(Knowledge(grades, RELATIONS, SpreadRule(top)), None)


def rule_of(records: Records) -> GradeRule:
    """The rule, which reads the training patients first."""
    return GradeRule(belief(records).knowledge)
