"""A discharge summary cut at its headings: parts, phases, and what must never move to an earlier one."""

from __future__ import annotations

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
    split_sections,
)

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
