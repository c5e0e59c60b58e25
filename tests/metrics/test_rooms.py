"""The parts that rooms add to the report: which patient is shown, what is marked, and that nothing is run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ghar.envs.ehr_rag.report as ehr_rag
import ghar.envs.exprag.report as exprag
import ghar.envs.graphwalker.report as graphwalker
import ghar.envs.kare.report as kare
from ghar.envs.graphwalker.cohort_chart import WalkPicture, cohort_chart, flatten
from ghar.metrics.report import write_report
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportStyle

Row = dict[str, Any]
EVIL = "<script>alert(1)</script>"
FACTORS = {
    "direct_hits": 2, "indirect_hits": 1, "hits": 0.5, "decay": 0.7, "coherence": 1.1, "recency": 1.2, "theme": 1.05,
    "relevance": 0.4851,
}  # fmt: skip


def run_of(path: Path, episodes: Mapping[str, Sequence[Row]]) -> RunFolder:
    folder = RunFolder.open(path)
    for name, rows in episodes.items():
        folder.write_episodes(name, rows)
    return folder


def words(html: str) -> str:
    """The text of a page as one line."""
    return " ".join(re.sub(r"<[^>]*>", " ", html).split())


# KARE


def told(sample_id: str, correct: bool = True, chain: str = "because", found: bool = True) -> Row:
    community = {"kind": "community", "ident": 4, "score": 0.4851, "text": "sepsis is grave", "names": ["sepsis"],
                 "size": 3, "shown": True, "factors": FACTORS}  # fmt: skip
    abstract = {"kind": "abstract", "ident": 1, "score": 0.2, "text": "on gout", "shown": True}
    return {
        "sample_id": sample_id, "patient": f"a patient {EVIL}", "similar": "another\noutcome: no", "label": "yes",
        "prediction": "yes" if correct else None, "correct": correct, "chain": chain,
        "found": [community] if found else [abstract],
    }  # fmt: skip


BUILT = {
    "build": {"graphs": {"concepts": 1200, "without_node": ["a", "b"], "asked": {"model": {"asked": 3}}}},
    "policies": {"kare": {"errors": {"no_label": 1}, "found": 9, "cut": 2, "shortened": 1}},
    "guidelines": {"coagent": {"advice": "1. Look."}},
}


def test_the_patient_shown_was_answered_rightly_with_communities_and_a_chain(tmp_path: Path) -> None:
    rows = [told("a", correct=False), told("b", chain=""), told("c", found=False), told("d"), told("e")]
    (part,) = kare.sections(run_of(tmp_path, {"rag": [told("d", found=False)], "kare": rows}), BUILT)
    text = words(part.html)
    assert part.title == "Communities" and "One patient, d, as method KARE saw it" in text
    assert "0.7000" in text and "sepsis and 2 more" in text and "sepsis is grave" in text
    assert "Label yes. KARE answered yes (right), rag answered yes (right)." in text
    assert "Graphs Concepts 1,200 Without node 2 Asked: model: asked 3" in text
    assert "Guidelines that coagent learned 1. Look." in text and "Unreadable replies of KARE: no_label 1." in text
    assert "KARE: 9 passages were looked up for all patients, 2 of them had no room" in text
    assert "<script>" not in part.html and "alert(1)" in part.html


def test_a_section_calls_variants_what_the_run_calls_them(tmp_path: Path) -> None:
    folder = run_of(tmp_path, {"kare": [told("a")]})
    (part,) = kare.sections(folder, {**BUILT, "titles": {"kare": "Trained"}})
    assert "as method Trained saw it" in words(part.html)


def test_no_method_was_shown_communities(tmp_path: Path) -> None:
    (part,) = kare.sections(run_of(tmp_path, {"zero_shot": [told("a", found=False)]}), BUILT)
    assert "No method of this run was shown communities." in part.html and "Concepts" in part.html
    assert kare.sections(run_of(tmp_path / "killed", {}), {})


# EXPRAG


def asked(sample_id: str, right: bool, experience: Row | None = None) -> Row:
    return {"sample_id": sample_id, "patient": f"p {EVIL}", "label": "A", "prediction": "A" if right else "B",
            "correct": right, "experience": experience}  # fmt: skip


def test_the_experience_shown_is_of_a_patient_who_was_answered_rightly(tmp_path: Path) -> None:
    found = {
        "ranked": [{"stay": 7, "score": 0.9, "text": "gout"}], "queries": ["q", "more"],
        "found": [{"stay": 7, "score": 0.5, "text": f"x: {EVIL} " + "long " * 999 + "end"}], "said": "1: colchicine",
        "options": [{"letter": "A", "text": "colchicine", "right": True, "chosen": True, "listed": 0.25}],
    }  # fmt: skip
    rows = [asked("a", False, found), asked("b", True, found)]
    (part,) = exprag.sections(run_of(tmp_path, {"direct": [asked("b", False)], "scripted": rows}), {})
    text = words(part.html)
    assert part.title == "Experience" and "One patient, b, as policy Scripted teacher saw it" in text
    assert (
        "Stay 7, rank 1, score 0.500" in text
        and "Looked up again: more" in text
        and "A. colchicine yes yes 25%" in text
    )
    assert "What of it fitted into the prompt 1: colchicine How it was used" in text
    assert "end" in text and "left out" not in text  # whole
    assert "Scripted teacher answered A (right), direct answered B (wrong)." in text
    assert "<script>" not in part.html
    assert exprag.sections(run_of(tmp_path / "none", {"direct": [asked("a", True)]}), {}) == []


# EHR-RAG


def argued(sample_id: str, correct: bool, used: dict[str, list[str]], found: bool = True) -> Row:
    text = f"[2150-01-01 00:00:00] drug - heparin {EVIL}\n[2150-01-01 00:00:00] drug - {'very ' * 999}rare"
    passage = {"kind": "chunks", "ident": 0, "score": 0.5, "first": "2140-01-01 00:00:00",
               "last": "2150-01-01 00:00:00", "text": text, "fitted": [1], "used": used}  # fmt: skip
    lookups = [{"path": side, "step": 0, "query": f"query {side}", "passages": [passage] if found else []}
               for side in ("numbers", "support", "oppose")]  # fmt: skip
    return {
        "sample_id": sample_id, "patient": "a patient", "label": "yes", "prediction": "yes" if correct else None,
        "correct": correct, "prediction_time": "2150-02-01 00:00:00", "found": lookups,
        "arguments": {"support": "heparin was given", "oppose": "weak"},
    }  # fmt: skip


EVENTS = {
    "task": {"labels": ["yes", "no"]},
    "policies": {"ehr_rag": {"class_f1": {"yes": [0.5, 0.4, 0.6]}, "errors": {"outside_labels": 2}}},
    "shots": {"counts": {s: {"macro_f1": [0.5, 0.4, 0.6]} for s in ("1", "2", "all")}},
}


@pytest.mark.slow
def test_the_events_shown_are_of_a_patient_whose_arguments_used_them(tmp_path: Path) -> None:
    both = {"support": ["heparin"], "oppose": ["heparin"]}
    rows = [argued("a", True, {}), argued("b", False, both), argued("c", True, both), argued("d", True, both)]
    (part,) = ehr_rag.sections(run_of(tmp_path, {"ehr_rag": rows}), EVENTS)
    text = words(part.html)
    assert part.title == "Events looked up" and "One patient, c, as method EHR-RAG saw it at 2150-02-01" in text
    assert "1 of 2 rows in the prompt" in text and "left out" not in text  # whole
    assert "\u25a1 [2150-01-01 00:00:00] drug - heparin" in text and "\u25a0 [2150-01-01 00:00:00] drug - very" in text
    for side in ("Measurements", "For the outcome", "Against the outcome"):
        assert f"{side}, search 1" in text
    assert "used for the outcome: 1 row; used against the outcome: 1 row" in text
    assert "EHR-RAG 0.500 0.400 to 0.600 – outside_labels 2" in text.replace("&ndash;", "–")
    for name in ("measurements, 1", "for the outcome, 1", "against the outcome, 1", "10 years", "30 days"):
        assert name in part.html, name
    assert "training samples a class" in part.html and "<script>" not in part.html
    again = ehr_rag.sections(RunFolder(tmp_path), EVENTS)
    assert again == [part]


def test_no_events_to_show(tmp_path: Path) -> None:
    nothing = run_of(tmp_path, {"ehr_rag": [argued("a", True, {}, found=False)]})
    assert ehr_rag.sections(nothing, {**EVENTS, "shots": {}}) == ehr_rag.sections(nothing, {}) == []
    (alone,) = ehr_rag.sections(run_of(tmp_path / "counts", {"counts": []}), EVENTS)
    assert "One patient" not in alone.html and "<svg" in alone.html


# GraphWalker


def test_who_was_chosen_for_whom(tmp_path: Path) -> None:
    points, own = flatten(np.random.default_rng(0).normal(size=(6, 4)), np.ones(4))
    walk = cohort_chart("a walk", WalkPicture(points, np.arange(6) % 2, [(0, 1)], own, [0], [1], [0, 2]))
    line = {"sample_id": EVIL, "label": "died", "prediction": None, "scored": 5,
            "shots": [{"sample_id": "s9", "label": "lived", "gain": 0.125}, {"sample_id": "s8", "label": "died",
                                                                             "gain": None}]}  # fmt: skip
    content = {"selector": "walker", "k": 2, "kind": "generated", "cost": {"scored prompts": 12.0},
               "clinical": {"auroc": [0.5, 0.52, 0.1]}, "rows": [line] * 31,
               "walk": {"sample_id": "s1", "svg": walk}}  # fmt: skip
    folder = RunFolder.open(tmp_path)
    assert graphwalker.sections(folder, {}) == []
    (part,) = graphwalker.sections(folder, {"selection": content})
    text = words(part.html)
    assert "AUROC 50.00 52.00±10.00" in text and "s9 (lived; +0.12500), s8 (died)" in text
    assert "The first 30 of 31 patients" in text and "<svg" in part.html and "<script>" not in part.html


@pytest.mark.parametrize("room", [kare, exprag, ehr_rag, graphwalker])
def test_a_room_s_part_stands_in_the_page_of_its_run(room: Any, tmp_path: Path) -> None:
    rows = {kare: told("a"), exprag: asked("a", True), ehr_rag: argued("a", True, {}), graphwalker: told("a")}[room]
    row = {
        "subject_id": 1, "retrieved": True, "needs_retrieval": None, "failure": None, "reward": None, "rewards": {},
        "iterations": 1, "prompt_tokens": 1, "completion_tokens": 1, "seconds": 0.1, "turns": [], **rows,
    }  # fmt: skip
    folder = run_of(tmp_path, {"main": [row]})
    nobody = {"selector": "s", "k": 1, "cost": {}, "clinical": {}, "rows": [], "walk": None}
    parts = room.sections(folder, {"selection": nobody})
    page = write_report(tmp_path, ReportStyle(sections=parts)).read_text()
    for number, part in enumerate(parts, 1):
        assert f'<section id="section-{number}"><h2>{part.title}</h2>' in page and part.html in page
        assert f'<a href="#section-{number}">{part.title}</a>' in page
    assert "Reward unknown" in page
