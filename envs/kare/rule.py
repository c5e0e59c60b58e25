"""A fixed rule in KARE's place, to see what the retrieved knowledge is worth: the highest grade decides."""

from __future__ import annotations

from dataclasses import dataclass

from ghar.envs.case import Case, topics_of
from ghar.envs.kare.corpus import ConceptNames
from ghar.envs.kare.episode import KareReading, join_both
from ghar.envs.real_patients import refuse
from ghar.envs.records import Records
from ghar.envs.worlds.severity_grades import (
    POSITIVE_FROM,
    Knowledge,
    exact_knowledge,
    finding,
    follows,
    mean_labels,
    reading_of,
)
from ghar.episode import Act
from ghar.llm.policy import FunctionPolicy, Policy

LEAST = 8  # samples that a topic needs for its mean label to count


class GradeRule:
    """Knows some grades, as `knowledge` says, and reads the others in what was looked up; what no one grades is 0.

    In the demo world, where outcomes follow from the highest grade, its accuracy says how much of what is needed was
    retrieved. It reads a case's topics and never its label.
    """

    def __init__(self, knowledge: Knowledge):
        self.knowledge = knowledge
        self._by_subject: dict[int, Knowledge] = {}

    def _about(self, subject: int) -> Knowledge:
        if subject not in self._by_subject:
            self._by_subject[subject] = self.knowledge.about(subject)
        return self._by_subject[subject]

    def __call__(self, act: Act) -> str:
        case: Case[KareReading] = act.facts["case"]
        knowledge = self._about(case.subject_id)
        common_grades = knowledge.grades
        grades = {
            topic: common_grades[topic] if topic in common_grades else reading_of(topic, act.facts["knowledge"]).grade
            for topic in case.topics
        }
        highest = max((grade for grade in grades.values() if grade is not None), default=0)
        label = case.task.labels[knowledge.label_of(highest)]
        chain = "; ".join(finding(topic, grade) for topic, grade in grades.items()) or "nothing recorded"
        return {"reason": chain, "predict": label, "both": join_both(chain, label)}[act.role]


@dataclass(frozen=True)
class Belief:
    """What fixed rules know. threshold: highest grade from which the second of two labels is the more probable; None
    where labels do not follow so."""

    knowledge: Knowledge
    threshold: int | None


def belief(records: Records) -> Belief:
    """What the rules know of the task of `records`: in the demo world the true grades of common entities, and where its
    labels do not follow from grades the mean labels of other training patients. BadInput for real patients."""
    world, task, name_of = records.world, records.config.task.name, ConceptNames(records.names)
    if world is None:
        refuse("system=kare's rule")
        raise AssertionError
    if follows(task):
        return Belief(exact_knowledge(world, name_of.of_all, task), POSITIVE_FROM.get(task))
    seen = [(sample.subject_id, topics_of(sample, name_of), sample.label) for sample in records.splits.train]
    return Belief(mean_labels(seen, len(records.task.labels) - 1, LEAST), None)


def rule_of(records: Records) -> Policy:
    """The rule, of generated patients."""
    return FunctionPolicy(GradeRule(belief(records).knowledge))
