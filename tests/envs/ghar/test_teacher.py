"""The scripted teacher: its rules without error, how often it errs, and what it cannot know."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from ghar.envs.ghar.joined_sources import MenuPart
from ghar.envs.ghar.pretraining import MISLED, TEACHER
from ghar.envs.ghar.teacher import Knowledge, ScriptedTeacher, TeacherErrors, believed, finding, grades_in
from ghar.envs.kare.retrieval.community_index import CommunityPart
from ghar.envs.worlds.severity.graph import QUALIFIERS
from ghar.episode import Act, Evidence, Passage, ReasoningStep
from ghar.kg.metapaths import MetaPath
from ghar.retrieval import patient_history
from tests.envs.parts import make_case

NEVER = TeacherErrors(**{f.name: 0.0 for f in fields(TeacherErrors)})
MENU = tuple(
    MetaPath(i, "disease", relation, "x", relation) for i, relation in enumerate(("r0", "effects", "r2", "signs", "r4"))
)
KNOWN = Knowledge(
    grades={"disease flu": 2, "drug senna": 6, "disease gout": 1},
    relations={"disease": "signs", "drug": "effects"},
    label_of=lambda grade: min(grade, 2),
    doubted=frozenset({"disease gout"}),
)
CASE = replace(make_case(label=1), topics=("disease flu", "disease rarity", "drug senna", "drug novelty"))


def test_errors_are_planted_in_an_ablation_alone() -> None:
    assert TEACHER.pain == TEACHER.misplaced == 0 < min(MISLED.pain, MISLED.misplaced)


def say(role: str, habits: TeacherErrors = NEVER, seed: int = 0, query: str = "", history=(), passages=()) -> str:
    facts = {"case": CASE, "query": query, "history": history, "evidence": Evidence(tuple(passages)), "metapaths": MENU}
    return ScriptedTeacher(KNOWN, habits).answer([Act("top", role, "", facts=facts)], [seed])[0].text


def step(query: str, answer: str) -> ReasoningStep:
    return ReasoningStep(query, answer, retrieved=True)


def edge(text: str) -> Passage:
    return Passage(text, "edge", 3, 1.0, 0)


def share(hits: list[bool], expected: float) -> bool:
    """Within four standard errors."""
    return abs(np.mean(hits) - expected) < 4 * np.sqrt(expected * (1 - expected) / len(hits)) + 1e-9


def test_unknown_topics_are_asked_or_where_all_are_known_the_gravest():
    assert {tuple(sorted(say("rewrite", seed=s).split("; ")[:2])) for s in range(9)} == {
        ("disease rarity", "drug novelty")
    }
    known = replace(CASE, topics=("disease flu", "drug senna", "disease gout"))
    act = Act("top", "rewrite", "", facts={"case": known, "query": "", "history": ()})
    assert ScriptedTeacher(KNOWN, NEVER).answer([act], [0])[0].text == "drug senna"


def test_what_a_finding_names_in_place_of_a_grade_is_asked_next():
    passages = [
        Passage("novelty - carrier - flu kinase", "edge", 0, 0.9, 1),
        Passage("novelty - target - some receptor", "edge", 0, 0.8, 2),
    ]
    found = say("summarise", query="drug novelty", passages=passages)
    assert found == "drug novelty target some receptor"
    history = (step("disease rarity", "disease rarity grade 2 course"), step("drug novelty", found))
    assert say("continue", history=history) == "continue"
    assert say("followup", history=history) == "gene some receptor"
    backwards = [Passage("grade 8 course - associated with - some receptor", "edge", 0, 0.9, 3)]
    answer = say("summarise", query="gene some receptor", passages=backwards)
    assert answer == "gene some receptor grade 8 course"
    history = (*history, step("gene some receptor", answer))
    assert say("continue", history=history) == "terminate"
    assert say("predict", history=history) == CASE.task.labels[KNOWN.label_of(8)]


@pytest.mark.parametrize("query, wanted", [
    ("disease rarity", "yes"), ("drug novelty", "yes"), ("disease flu", "no"), ("disease gout", "yes"),
])  # fmt: skip
def test_what_is_unknown_or_doubted_is_looked_up(query, wanted):
    assert say("retrieve", query=query) == wanted
    flipped = [say("retrieve", replace(NEVER, flip=0.3), s, query) != wanted for s in range(400)]
    assert share(flipped, 0.3)


def test_the_relation_of_the_topic_is_named_with_strays_among_them():
    assert say("metapaths", query="disease rarity") == "3" and say("metapaths", query="drug novelty") == "1"
    replies = [say("metapaths", replace(NEVER, stray_path=0.5), s, "disease rarity").split() for s in range(300)]
    assert all("3" in ids and 1 <= len(ids) <= 4 for ids in replies)
    assert share([len(ids) > 1 for ids in replies], 0.5)
    assert {i for ids in replies for i in ids} == {str(i) for i in range(len(MENU) + 1)}  # one id does not exist
    assert any(len(set(ids)) < len(ids) for ids in replies)
    missed = [say("metapaths", replace(NEVER, missed_path=1.0), s, "disease rarity") for s in range(200)]
    assert all(len(ids.split()) == 1 for ids in missed) and share([ids == "3" for ids in missed], 1 / 6)


def test_summaries_report_the_topics_own_edge_alone():
    other = edge("rarity, late form - signs - grade 9 course")
    assert say("summarise", query="disease rarity", passages=[other]) == "disease rarity unknown"
    own = edge("rarity - signs - grade 4 course")
    assert say("summarise", query="disease rarity", passages=[other, own]) == finding("disease rarity", 4)
    plain = edge("rarity - lives in - liver")
    assert say("summarise", query="disease rarity", passages=[other, plain]) == "disease rarity liver"
    assert say("summarise", query="disease rarity") == "disease rarity unknown"


def test_over_communities_it_names_the_relation_and_reads_the_topics_own_sentences():
    menu = tuple(CommunityPart(i, relation) for i, relation in enumerate(("indication", "phenotype present", "target")))
    knowledge = replace(KNOWN, relations={"disease": "disease_phenotype_positive"})
    facts = {"case": CASE, "query": "disease rarity", "history": (), "evidence": Evidence(), "metapaths": menu}
    [reply] = ScriptedTeacher(knowledge, NEVER).answer([Act("top", "metapaths", "", facts=facts)], [0])
    assert reply.text == "1"

    def community(text: str) -> Passage:
        return Passage(text, "community", 3, 1.0, 0)

    other = community(f"rare ity {QUALIFIERS[0]} signs grade 9 course. flu signs grade 8 course.")
    assert say("summarise", query="disease rare-ity", passages=[other]) == "disease rare-ity unknown"
    own = community("flu signs grade 8 course. rare ity signs grade 4 course and fever.")
    assert say("summarise", query="disease rare-ity", passages=[other, own]) == finding("disease rare-ity", 4)


def test_of_a_protein_it_may_hand_on_the_grade_of_a_pain():
    """Of which nothing follows; what it says of conditions stays as it is."""
    wrong, protein = replace(NEVER, pain=0.7), "gene some receptor"
    both = [edge("grade 8 course - associated with - some receptor"),
            edge("some receptor - associated with - grade 3 pain")]  # fmt: skip
    found = [say("summarise", wrong, s, protein, passages=both) for s in range(400)]
    assert set(found) == {finding(protein, 8), f"{protein} grade 3 pain"}
    assert share(["pain" in text for text in found], 0.7)
    own = [edge("rarity - signs - grade 4 course"), edge("rarity - signs - grade 9 pain")]
    told = {say("summarise", wrong, s, "disease rarity", passages=own) for s in range(50)}
    assert told == {finding("disease rarity", 4)}
    case, hop = replace(CASE, topics=("drug novelty",)), step("drug novelty", "drug novelty target some receptor")
    assert max(believed(KNOWN, case, (hop, step(protein, f"{protein} grade 3 pain")))) == 0
    assert max(believed(KNOWN, case, (hop, step(protein, finding(protein, 8))))) == 8


def test_where_numbers_tell_it_may_ask_the_rows_of_years_ago():
    """And reads what a number fell by as a grade, where it finds it."""
    menu = tuple(MenuPart(i, part, part, "past") for i, part in enumerate(patient_history.PARTS))
    relations = {"disease failing graft": patient_history.NUMBERS, "disease": patient_history.EARLY}
    knowledge = replace(KNOWN, relations=relations)

    def asked(topic: str, seed: int) -> str:
        facts = {"case": CASE, "query": topic, "history": (), "evidence": Evidence(), "metapaths": menu}
        teacher = ScriptedTeacher(knowledge, replace(NEVER, misplaced=0.7))
        return teacher.answer([Act("top", "metapaths", "", facts=facts)], [seed])[0].text

    found = [asked("disease failing graft", seed) for seed in range(400)]
    assert set(found) == {"0", "2"} and share([reply == "0" for reply in found], 0.7)
    assert {asked("disease rarity", seed) for seed in range(50)} == {"0"}
    told = Passage("failing graft clearance - 8 values, the last 40.1 - lately falling 6 a year", "row", 2, 1.0, 9)
    raw = Passage("failing graft clearance - 7 years before - 84.2", "row", 0, 1.0, 1)
    assert say("summarise", query="disease failing graft", passages=[told]) == finding("disease failing graft", 6)
    assert say("summarise", query="disease failing graft", passages=[raw]) == "disease failing graft unknown"


def test_answers_are_what_it_knows():
    assert grades_in(say("answer", query="drug senna")) == [6]
    assert say("answer", query="drug novelty") == "drug novelty unknown"


def test_it_ends_when_every_unknown_topic_was_asked():
    half = (step("disease rarity", finding("disease rarity", 1)),)
    assert say("continue", history=half) == "continue"
    assert {say("followup", history=half, seed=s) for s in range(9)} == {"drug novelty"}
    whole = (*half, step("drug novelty", "drug novelty unknown"))
    assert say("continue", history=whole) == "terminate"
    went_on = [say("continue", replace(NEVER, go_on=0.6), s, history=whole) == "continue" for s in range(400)]
    assert share(went_on, 0.6)


def test_the_prediction_is_of_the_highest_grade_found_or_known():
    assert say("predict") == CASE.task.labels[2]  # senna, grade 6
    mild = (step("drug senna", finding("drug senna", 1)), step("disease rarity", "disease rarity unknown"))
    assert say("predict", history=mild) == CASE.task.labels[2]  # flu, grade 2; senna is settled as 1
    milder = (*mild, step("disease flu", finding("disease flu", 0)))
    assert say("predict", history=milder) == CASE.task.labels[1]


def test_nothing_it_says_depends_on_the_label():
    habits = replace(NEVER, flip=0.3, stray_path=0.4, go_on=0.5, disorder=0.5, guess=0.3)
    for role in ("rewrite", "retrieve", "metapaths", "summarise", "answer", "continue", "followup", "predict"):
        for seed in range(5):
            replies = set()
            for label in range(3):
                facts = {"case": replace(CASE, label=label), "query": "disease rarity", "history": (),
                         "evidence": Evidence(), "metapaths": MENU}  # fmt: skip
                act = Act("top", role, "", facts=facts)
                replies.add(ScriptedTeacher(KNOWN, habits).answer([act], [seed])[0].text)
            assert len(replies) == 1


def test_a_patient_without_topics_is_asked_about_as_a_whole():
    act = Act("top", "rewrite", "", facts={"case": replace(CASE, topics=())})
    assert ScriptedTeacher(KNOWN, NEVER).answer([act], [0])[0].text == CASE.text
