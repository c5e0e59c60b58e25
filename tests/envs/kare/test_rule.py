"""The fixed rule: what it knows, what it reads, and what it makes of it."""

from __future__ import annotations

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.graph.considerations import considerations_of
from ghar.envs.kare.rule import GradeRule
from ghar.envs.worlds.severity_grades import Knowledge
from ghar.episode import Act
from ghar.llm.policy import FunctionPolicy

TASK = Task("kare-readmission", "Back soon?", ("no", "yes"))
CASE = Case("s", 1, 1, "now: disease gout; drug iron", ("disease gout", "drug iron"), TASK, 1, KareReading())
RULE = FunctionPolicy(GradeRule(Knowledge({"drug iron": 2}, {}, lambda grade: int(grade >= 5))))


def said(role: str, told: str) -> str:
    act = Act("top", role, "", facts={"case": CASE, "knowledge": told})
    return RULE.answer([act], [0])[0].text


def test_the_highest_grade_decides() -> None:
    assert said("predict", "- gout phenotype present grade 7 course of gout.") == "yes"
    assert said("predict", "- gout phenotype present grade 4 course of gout.") == "no"
    assert said("predict", "- asthma phenotype present grade 9 course of asthma.") == "no"
    assert said("predict", "- iron leads to a grade 9 course.") == "no", "what it knows it does not look up"
    assert said("predict", "") == "no"


def test_the_chain_names_every_topic() -> None:
    told = "gout takes a grade 7 course"
    assert said("reason", told) == "disease gout grade 7 course; drug iron grade 2 course"
    assert said("both", told).endswith("answer: yes") and "disease gout unknown" in said("reason", "")


def test_every_task_with_a_theme_has_considerations() -> None:
    for task in ("los", "dec", "read", "kare_mortality", "kare-readmission"):
        assert len(considerations_of(task)) >= 3
