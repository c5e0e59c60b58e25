"""A fixed rule in KARE's place, to see what the retrieved knowledge is worth: the highest grade decides."""

from __future__ import annotations

from collections.abc import Sequence

from envs.ghar.teacher import Knowledge, finding
from envs.kare.episode import KareCase, join_both
from ghar.episode import Act, Completion
from trainers.scripted_expert import grade_in


class GradeRule:
    """Knows some grades, as `knowledge` says, and reads the others in what was looked up; what nobody grades is 0.

    In the demo world, where outcomes follow from the highest grade, its accuracy says how much of what is needed was
    retrieved. It reads a case's topics and never its label.
    """

    def __init__(self, knowledge: Knowledge):
        self.knowledge = knowledge

    def answer(self, acts: Sequence[Act], seeds: Sequence[int]) -> list[Completion]:
        return [Completion(self._reply(act.role, act.facts["case"], act.facts["knowledge"])) for act in acts]

    def _reply(self, role: str, case: KareCase, told: str) -> str:
        known = self.knowledge.grades
        grades = {
            topic: known[topic] if topic in known else grade_in(topic.split(" ", 1)[1], told) for topic in case.topics
        }
        highest = max((grade for grade in grades.values() if grade is not None), default=0)
        label = case.task.labels[self.knowledge.label_of(highest)]
        chain = "; ".join(finding(topic, grade) for topic, grade in grades.items()) or "nothing recorded"
        return {"reason": chain, "predict": label, "both": join_both(chain, label)}[role]
