"""Headings of discharge summaries however they are written: nothing of a later phase is shown before it."""

from __future__ import annotations

from itertools import product

import pytest

from ghar.data.headings import plain
from ghar.data.sections import PHASES, background, section_text, split_sections, unknown_headings

MARKER = "Zebra stripes were seen."
REPORT = """Name: ___   Unit No: ___
Admission Date: 2150-01-01   Discharge Date: 2150-01-09
Sex: F
Service: MEDICINE

Chief Complaint:
cough
History of Present Illness:
A cough for a week.
Past Medical History:
asthma
Physical Exam:
VS: 98.6
HEENT: no redness
Lungs: crackles
{exam}Pertinent Results:
white cells 14
{results}Brief Hospital Course:
# Pneumonia: given antibiotics
She got better.
{course}Medications on Admission:
albuterol
{late}Discharge Medications:
1. Amoxicillin
Discharge Diagnosis:
Pneumonia
Discharge Instructions:
Rest.
"""
WORDS = (
    "discharge exam", "exam on discharge", "physical exam at discharge", "discharge physical examination",
    "vitals on discharge", "discharge vital signs", "d/c exam", "exam at time of d/c", "pe on dc", "discharge labs",
    "labs prior to discharge", "transitional issues", "transitional care", "issues for pcp", "follow-up", "f/u plan",
    "to do after discharge", "pending results at discharge", "outpatient plan", "recommendations for the pcp",
    "dispo", "status on leaving", "going home with", "last exam before leaving", "condition at discharge",
)  # fmt: skip
# Written by a second reader, who had not seen the rules; 20 of these 40 let something through at first.
SECOND = (
    "dis-charge exam:", "Dischrage exam:", "Discharg exam:", "Dicsharge exam:", "Transitonal issues:", "@ discharge:",
    "Ｄischarge exam:", "»» Discharge exam ««", "Exam at hospital exit:", "Predischarge exam:", "Closing exam:",
    "SNF orders:", "VNA orders:", "Home meds continued:", "Medications newly started:", "STOPPED medications:",
    "Summary of outcome:", "Cause of death:", "Time of death:", "Death note:", "D\\C Exam:", "D/C'd with:", "TI:",
    "Exam (day of dc):", "Exam [at discharge]:", "<b>Discharge Exam</b>", "| Discharge exam |", "1) At discharge:",
    "i. at discharge:", "• At discharge:", "POST-OP DAY 4, HOME:", "EXAM TODAY (DAY OF D/C):", "For PCP:", "Handoff:",
    "Sign-out to rehab:", "Wt on dc:", "Pt d/ced home w/:", "ENTLASSUNG:", "Autopsy:", "Discharge\u200bExam:",
)  # fmt: skip
WRITTEN = (
    "{title}:",
    "{upper}:",
    "**{upper}**",
    "==== {upper} ====",
    "#{title}:",
    "[{title}]",
    "  - {title}:",
    "{title}: ",
)
VARIANTS = [(name, form.format(title=name.capitalize(), upper=name.upper())) for name, form in product(WORDS, WRITTEN)]
SHOWN = {"diagnosis": PHASES["clinical profile"], "medication": PHASES["clinical profile"] + PHASES["in hospital"]}


def report(**late: str) -> str:
    return REPORT.format(**{"exam": "", "results": "", "course": "", "late": "", **late})


def shown(text: str, kind: str) -> str:
    return background(split_sections(text), SHOWN[kind], 500)


@pytest.mark.parametrize("heading", SECOND)
def test_headings_of_a_second_reader(heading: str) -> None:
    for place, kind in product(("exam", "results", "course", "late"), SHOWN):
        for below in ("\n", " ")[: 1 + heading.endswith(":")]:
            text = report(**{place: f"{heading}{below}{MARKER}\nAgain: {MARKER}\n"})
            assert MARKER not in shown(text, kind), (place, kind)


def test_parts_of_an_examination_are_no_later_phase() -> None:
    for heading in ("Exit site:", "Closing pressure:", "Charge nurse:"):
        assert MARKER in shown(report(exam=f"{heading} {MARKER}\n"), "diagnosis"), heading


@pytest.mark.slow
def test_there_are_200_variants_and_none_lets_a_late_sentence_through() -> None:
    assert len(VARIANTS) == 200
    leaks = []
    for (_, heading), place, kind in product(VARIANTS, ("exam", "results", "course", "late"), SHOWN):
        line = f"{heading}{MARKER}\n" if heading.endswith(" ") else f"{heading}\n{MARKER}\nAgain: {MARKER}\n"
        if MARKER in shown(report(**{place: line}), kind):
            leaks.append((heading, place, kind))
    assert leaks == []


@pytest.mark.parametrize("heading", ["Zygomatics:", "OBSERVANDA", "**Sonstiges**", "Quo Vadis: ", "=== Notabene ==="])
@pytest.mark.parametrize("place", ["exam", "results", "course"])
def test_an_unknown_heading_fails_closed_and_is_counted(heading: str, place: str) -> None:
    text = report(**{place: f"{heading}\n{MARKER}\n" if not heading.endswith(" ") else f"{heading}{MARKER}\n"})
    assert all(MARKER not in shown(text, kind) for kind in SHOWN)
    [named] = unknown_headings(text)
    assert plain(named) == plain(heading)


def test_a_mapping_says_what_an_unknown_heading_means() -> None:
    text, own = report(results=f"Zygomatics:\n{MARKER}\n"), (("Zygomatics", "progress"),)
    sections = split_sections(text, own)
    assert MARKER in background(sections, SHOWN["medication"], 500) and not unknown_headings(text, own)
    assert MARKER not in background(sections, SHOWN["diagnosis"], 500)


def test_what_is_early_stays_shown() -> None:
    """Neither organ systems nor problems of the course are headings, so that nothing of them is lost."""
    text = report()
    profile, stay = shown(text, "diagnosis"), shown(text, "medication")
    for early in ("cough", "A cough for a week.", "asthma", "98.6", "no redness", "crackles", "Sex: F"):
        assert early in profile
    for progress in ("white cells 14", "given antibiotics", "She got better.", "albuterol"):
        assert progress in stay and progress not in profile
    assert unknown_headings(text) == ()


@pytest.mark.parametrize("written, part", [
    ("PHYSICAL EXAM ON ADMISSION:", "assessment"), ("Exam on admission:", "assessment"), ("HPI:", "presenting"),
    ("**PMH**", "presenting"), ("Hospital Course:", "progress"), ("LABS:", "progress"), ("Imaging:", "progress"),
    ("Micro:", "progress"), ("Admission labs:", "progress"), ("Procedures:", "treatment"),
    ("Final Diagnosis:", "discharge"), ("D/C meds:", "discharge"), ("Follow-up Instructions:", "instructions"),
    ("Medications on discharge:", "discharge"), ("Admission diagnosis:", "presenting"),
])  # fmt: skip
def test_usual_headings_are_known(written: str, part: str) -> None:
    text = f"Chief Complaint:\ncough\n{written}\n{MARKER}\nDischarge Instructions:\nRest.\n"
    assert next(s.part for s in split_sections(text) if MARKER in s.text) == part and not unknown_headings(text)


def test_an_examination_under_a_late_heading_is_late() -> None:
    text = report(exam=f"DISCHARGE:\nVitals: 98\nPhysical Exam:\n{MARKER}\n")
    assert all(MARKER not in shown(text, kind) for kind in SHOWN)
    assert "white cells 14" in shown(text, "medication")


def test_lists_are_found_under_other_names() -> None:
    text = "Chief Complaint:\ncough\nHospital Course:\nfine\nFinal Diagnoses:\nPneumonia\nD/C Instructions:\nRest.\n"
    sections = split_sections(text)
    assert section_text(sections, "discharge diagnosis") == "Pneumonia"
    assert section_text(sections, "discharge instructions") == "Rest."
