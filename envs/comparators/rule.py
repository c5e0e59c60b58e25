"""A rule that plays every comparator on patients whose outcome follows from grades: it asks by name for what it does
not know, and believes the highest grade that is stated of a condition or drug of the patient."""

from __future__ import annotations

from collections.abc import Sequence

from ghar.envs.case import Case
from ghar.envs.worlds.severity_grades import Knowledge, finding, grade_in, targets_in
from ghar.episode import Act, ReasoningStep

RELATIONS = "entities: {entities} | relations: phenotype present; drug protein"


class ComparatorRule:
    """Answer each act by its role. knowledge: grades of what it knows."""

    def __init__(self, knowledge: Knowledge) -> None:
        self.knowledge = knowledge
        self._rules = {
            "think": self._think, "want": self._want, "search": self._search, "keywords": self._keywords,
            "extract": self._extract, "predict": self._predict,
        }  # fmt: skip

    def __call__(self, act: Act) -> str:
        return self._rules[act.role](act, act.facts["case"])

    def _unknown(self, case: Case) -> list[str]:
        return [topic for topic in case.topics if topic not in self.knowledge.grades]

    def _think(self, act: Act, case: Case) -> str:
        findings = [finding(topic, self.knowledge.grades.get(topic)) for topic in case.topics[:3]]
        return "; ".join(findings) or "nothing known"

    def _want(self, act: Act, case: Case) -> str:
        return "yes" if self._unknown(case) else "no"

    def _search(self, act: Act, case: Case) -> str:
        history: Sequence[ReasoningStep] = act.facts["history"]
        asked = {step.query for step in history}
        named = [target for step in history for target in targets_in(step.answer)]
        left = [topic for topic in (*named, *self._unknown(case)) if topic not in asked]
        return f"search: {left[0]}" if left else "answer"

    def _keywords(self, act: Act, case: Case) -> str:
        return RELATIONS.format(entities="; ".join(self._unknown(case)[:3] or case.topics[:1]))

    def _extract(self, act: Act, case: Case) -> str:
        stated = [(topic, _stated(topic, act.facts["shown"])) for topic in case.topics]
        return "; ".join(finding(topic, grade) for topic, grade in stated if grade is not None) or "nothing of use"

    def _predict(self, act: Act, case: Case) -> str:
        text = "; ".join(step.answer for step in act.facts["history"])
        grades = []
        for topic in case.topics:
            stated = _stated(topic, text)
            grades.append(self.knowledge.grades.get(topic, 0) if stated is None else stated)
        return case.task.labels[self.knowledge.label_of(max(grades, default=0))]


def _stated(topic: str, text: str) -> int | None:
    """The highest grade that a text states of a topic, or of what it names as its target."""
    return grade_in(topic.split(" ", 1)[-1], text.replace(" - ", " "))
