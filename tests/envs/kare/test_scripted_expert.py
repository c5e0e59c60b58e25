"""The demo's expert: what it knows, what it reads, and how sure it says it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Task
from ghar.envs.case import Case
from ghar.envs.kare.episode import KareReading
from ghar.envs.kare.expert_chains import CONFIDENCES, expert_prompt, gives_away, read_chain
from ghar.envs.kare.scripted_expert import scripted_expert, topics_in
from ghar.envs.worlds.severity.graph import QUALIFIERS
from ghar.envs.worlds.severity_grades import RELATIONS, Knowledge, grade_in, label_rule

TASK = Task("kare-readmission", "Will this patient come back?", ("no", "yes"))
KNOWS = Knowledge({"disease asthma": 2, "drug aspirin": 6}, RELATIONS, label_rule("kare_readmission"))
EXPERT = scripted_expert(KNOWS, 5)
LEVELS = ("none", *(str(n) for n in range(10)))


def case(record: str, label: int, similar: str = "") -> Case[KareReading]:
    return Case("s", 1, 2, record, (), TASK, label, KareReading(similar))


def chain(record: str, label: int, knowledge: str = "", similar: str = ""):
    return read_chain(EXPERT(expert_prompt(case(record, label, similar), knowledge, "")))


def test_it_reasons_from_what_it_knows_and_reads():
    similar = "now: disease yes fever\noutcome: no\nnow: disease gout\noutcome: yes"
    told = "- Gout has a grade 8 course; gout familial form has a grade 1 course.\n- mumps and rickets"
    found = chain("before: mumps\nnow: disease asthma; disease gout", 1, told, similar)
    assert found.text.splitlines() == [
        "1. disease asthma grade 2 course",
        "2. disease gout grade 8 course",
        "3. no, yes",
        "4. highest grade 8 course, yes from 5 on",
        "5. yes",
    ]
    assert CONFIDENCES[found.confidence] == "very confident"


def test_it_follows_a_drug_to_its_target():
    told = "- Ironox side effect grade 9 course. Ironox plus target corlanu wenmekase."
    told += "\n- Corlanu wenmekase grade 3 course."
    found = chain("now: drug ironox plus; disease mumps", 0, told)
    assert found.text.splitlines()[:2] == [
        "1. nothing known",
        "2. drug ironox plus target corlanu wenmekase; gene corlanu wenmekase grade 3 course; disease mumps unknown",
    ]


@pytest.mark.parametrize("record, label, sure", [
    ("now: disease asthma; drug aspirin", 1, "very confident"),
    ("now: disease asthma; drug aspirin", 0, "not confident"),  # its law says otherwise
    ("now: drug aspirin; disease gout", 1, "confident"),  # gout's grade is nowhere
    ("now: drug aspirin; disease gout", 0, "very not confident"),
    ("now: disease gout", 0, "very not confident"),
    ("now: none", 1, "very not confident"),
    ("", 1, "very not confident"),
])  # fmt: skip
def test_confidence_falls_where_the_context_lacks_or_contradicts(record, label, sure):
    found = chain(record, label)
    assert CONFIDENCES[found.confidence] == sure
    assert found.text.endswith(f"5. {TASK.labels[label]}")


@given(st.lists(st.sampled_from(["asthma", "gout", "mumps"]), max_size=4), st.integers(0, 1), st.text(max_size=80))
def test_it_never_gives_the_label_away_and_keeps_the_contract(names, label, told):
    found = chain("now: " + ("; ".join(f"disease {name}" for name in names) or "none"), label, told)
    assert gives_away(found.text) is None


def test_topics_of_both_styles_of_a_record():
    compact = "before: gout; mumps\nnow: disease asthma; drug aspirin"
    full = (
        "Visit 1 of 2 (2101-01-01): Conditions: gout.\n"
        "Visit 2 of 2 (2101-02-01): Conditions: asthma. Procedures: x ray. Medications: aspirin."
    )
    assert topics_in(compact) == topics_in(full) == ("disease asthma", "drug aspirin")
    assert topics_in("now: none") == () == topics_in("")


@given(st.sampled_from(QUALIFIERS), st.sampled_from(LEVELS))
def test_a_look_alike_is_another_disease(words, level):
    told = "" if level == "none" else f"gout has a grade {level} course"
    assert grade_in("gout", f"gout {words} has a grade 9 course; {told}") == (None if level == "none" else int(level))
    assert grade_in("gout", f"tophaceous-gouty arthritis has a grade 9 course. {told}") == (
        None if level == "none" else int(level)
    )
