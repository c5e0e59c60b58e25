"""A discharge summary cut at its headings: parts, phases, and what must never move to an earlier one."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.headings import HEAD, HEADINGS
from ghar.data.sections import (
    PARTS,
    PHASES,
    VISIT_HEADINGS,
    background,
    longest_allowed,
    section_text,
    sentences,
    split_sections,
)
from ghar.envs.worlds.severity.notes import write_notes
from ghar.envs.worlds.severity.world import generate_world

REPORT = """Name: ___
Admission Date: 2150-01-01   Discharge Date: 2150-01-09
Sex: F

Chief Complaint:
cough
Major Surgical or Invasive Procedure:
bronchoscopy
History of Present Illness:
A cough for a week. She was discharged home with codeine last month. No fever.
Physical Exam:
ADMISSION EXAM: crackles
ON DISCHARGE: lungs clear
Pertinent Results:
white cells 14
Brief Hospital Course:
Given antibiotics. Went home on amoxicillin.
TRANSITIONAL ISSUES:
- repeat the film
Discharge Medications:
1. Amoxicillin 500 mg PO TID
Discharge Diagnosis:
Pneumonia
Discharge Instructions:
Rest.
Medications:
take them all
Followup Instructions:
clinic
"""


def parts_of(text: str) -> dict[str, str]:
    found = split_sections(text)
    return {part: " / ".join(s.text for s in found if s.part == part) for part in PARTS}


def test_seven_parts() -> None:
    parts = parts_of(REPORT)
    assert parts["treatment"] == "bronchoscopy" and parts["presenting"].startswith("cough / A cough")
    assert parts["assessment"] == "crackles"
    assert parts["progress"] == "white cells 14 / Given antibiotics. Went home on amoxicillin."
    assert "Pneumonia" in parts["discharge"]


def test_text_of_a_later_phase_goes_there() -> None:
    parts = parts_of(REPORT)
    assert "lungs clear" in parts["discharge"] and "2150-01-09" in parts["discharge"]
    assert "2150-01-09" not in parts["demography"] and "Sex: F" in parts["demography"]
    assert "repeat the film" in parts["instructions"]
    # a heading of an earlier phase inside the instructions is part of them
    assert "take them all" in parts["instructions"] and "take them all" not in parts["presenting"]


def test_the_background_says_nothing_of_a_later_phase() -> None:
    shown = background(split_sections(REPORT), PHASES["clinical profile"], 500)
    for late in ("bronchoscopy", "2150-01-09", "lungs clear", "antibiotics", "moxicillin", "Pneumonia", "codeine"):
        assert late not in shown
    assert "No fever." in shown
    stay = background(split_sections(REPORT), PHASES["clinical profile"] + PHASES["in hospital"], 500)
    assert "Given antibiotics." in stay and "amoxicillin" not in stay


def test_a_report_without_headings_is_one_section() -> None:
    [only] = split_sections("nothing is marked here")
    assert (only.heading, only.part, only.text) == (HEAD, "demography", "nothing is marked here")
    assert split_sections("") == ()


words = st.text("abc .\n", max_size=12)
pieces = st.lists(st.one_of(st.sampled_from([f"\n{h.title()}:\n" for h in HEADINGS | VISIT_HEADINGS]), words))


@given(pieces.map("".join))
def test_sections_lie_in_order_and_a_phase_never_returns(text: str) -> None:
    found = split_sections(text)
    assert all(text[s.start : s.end] == s.text and s.text for s in found)
    assert all(a.end <= b.start for a, b in pairwise(found))
    # main sections; text of a later phase under a heading of its own may stand within an earlier one
    plan = [s.part in PHASES["discharge plan"] for s in found if s.heading in HEADINGS]
    assert plan == sorted(plan)


@given(st.lists(st.integers(0, 30), max_size=8), st.integers(0, 60))
def test_the_longest_are_cut_first(lengths: list[int], budget: int) -> None:
    limit = longest_allowed(lengths, budget)
    cut = sum(min(length, limit) for length in lengths)
    assert cut <= budget and (cut == sum(lengths) or sum(min(n, limit + 1) for n in lengths) > budget)


def test_visit_notes_of_aci_bench(shared_data: Path) -> None:
    files = sorted((shared_data / "text" / "aci-bench").glob("*.csv.gz"))
    if not files:
        pytest.skip("no aci-bench in the shared data")
    notes = [note for file in files for note in pl.read_csv(file)["note"]]
    assert len(notes) == 207
    for note in notes:
        found = split_sections(note)
        assert len(found) >= 3
        assert section_text(found, "plan", "assessment", "assessment and plan", "impression", "instructions")
        assert sum(len(s.text) for s in found) > 0.8 * len(note.strip())


CLINICAL = [  # pairs of sentences with abbreviations
    ["Seen by Dr. Smith.", "Metoprolol 25 mg q.d. was started."],
    ["Pt. was admitted with SOB.", "Cr. rose to 2.1 on day 3."],
    ["He took aspirin 81 mg p.o. daily.", "BP 120/80, HR 72."],
    ["Given Lasix 40 mg i.v. x1 with good effect.", "Discharged home."],
    ["K 3.4, repleted.", "Mg 1.8."],
    ["Follow up with Dr. Jones in 2 weeks.", "Call for temp. > 101.5 F."],
    ["The patient, a 65 y.o. male, did well.", "No complications."],
    ["St. Mary's Hosp. transferred her.", "She was stable."],
    ["Vancomycin 1 g q. 12 h. was given.", "Cultures were negative."],
    ["EF 35% vs. 55% before.", "Started on ACE inhibitor."],
    ["WBC 12.3.", "Hct 30."],
    ["Hx of MI, CHF, etc.", "Denies chest pain."],
    ["Was she septic?", "No."],
    ["Tylenol 650 mg p.r.n. pain.", "Resume home meds."],
    ["approx. 500 cc of fluid removed.", "Tolerated well."],
    ["Oxycodone 5 mg b.i.d.", "Warfarin 2 mg t.i.d."],
]
OLD_END = re.compile(
    r"(?<=[.!?])(?<!\bDr\.)(?<!\bMr\.)(?<!\bMs\.)(?<!\bMrs\.)(?<!\bSt\.)(?<!\bvs\.)(?<!\bNo\.)(?<!\be\.g\.)(?<!\bi\.e\.)"
    r"[ \t]+|\n+"
)


def test_sentences_end_where_they_end_and_not_at_abbreviations() -> None:
    right = sum(sentences(" ".join(pair)) == pair for pair in CLINICAL)
    before = sum(OLD_END.split(" ".join(pair)) == pair for pair in CLINICAL)
    assert (right, before) == (11, 6) and sentences(CLINICAL[0][0] + "\n " + CLINICAL[0][1]) == CLINICAL[0]


def test_generated_notes_are_cut_as_before(tmp_path: Path) -> None:
    world, notes = tmp_path / "world", tmp_path / "notes"
    generate_world(world, seed=0, patients=40)
    write_notes(world, notes)
    texts = pl.read_csv(notes / "note" / "discharge.csv.gz", infer_schema=False)["text"].to_list()
    for text in texts:
        assert sentences(text) == [piece.strip() for piece in OLD_END.split(text) if piece.strip()]
    assert texts
