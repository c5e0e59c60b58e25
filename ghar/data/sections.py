"""A discharge summary cut at its headings into seven parts and three phases (Appendix A.1 and A.3, EXPRAG).

    clinical profile   demography, presenting, assessment     known before the diagnosis
    in hospital        treatment, progress
    discharge plan     discharge, instructions

Headings are read by their words, however they are written (headings.py), and what is not understood fails closed: text
under an unknown heading counts as of the discharge plan, which no question shows, up to the next heading that is known
(`unknown_headings` names them; a mapping may be given). A section may hold text of a later phase under a heading of its
own, "Exam on discharge:" say; from there on it is of the later phase, and only a main heading of the report ends it.

Results are of the whole stay (the paper's Figure 7 says so), so they count as progress. Medications on admission, which
stand late in a report, are known early, but the released code counts them as progress, and so do we.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]  # compiled, without types

from ghar.data.headings import HEAD, LATE, UNKNOWN, Heading, find_headings

PARTS = ("demography", "presenting", "assessment", "treatment", "progress", "discharge", "instructions")
PHASES = {"clinical profile": PARTS[:3], "in hospital": PARTS[3:5], "discharge plan": PARTS[5:]}
VISIT_HEADINGS = {  # of notes of outpatient visits, as in aci-bench; looked for where no heading of a summary is found
    "chief complaint": "presenting", "history of present illness": "presenting", "medical history": "presenting",
    "past history": "presenting", "past medical history": "presenting", "surgical history": "presenting",
    "social history": "presenting", "family history": "presenting", "review of systems": "presenting",
    "current medications": "presenting", "medications": "presenting", "allergies": "presenting",
    "physical examination": "assessment", "physical exam": "assessment", "exam": "assessment", "vitals": "assessment",
    "results": "progress", "impression": "discharge", "assessment": "discharge", "assessment and plan": "discharge",
    "plan": "discharge", "instructions": "instructions",
}  # fmt: skip
VISIT_LINES = re.compile(
    rf"^[ \t]*(?P<heading>{'|'.join(sorted(VISIT_HEADINGS, key=len, reverse=True))})[ \t]*(?::|$)",
    re.IGNORECASE | re.MULTILINE,
)
DISCHARGE_DATE = re.compile(r"Discharge Date:[^\n]*", re.IGNORECASE)
# What an earlier phase cannot know. Sentences that say so are not shown as background.
HINDSIGHT = re.compile(
    r"\b(?:discharged|(?:at|on|upon|for|prior to|before|until) discharge|"
    r"discharge (?:medication|diagnos|plan|instruction|home|to)|d/c(?:ed|'d)|(?:went|go|sent) home (?:on|with))",
    re.IGNORECASE,
)
Own = tuple[tuple[str, str], ...]  # heading, as it is written but for case and marks, and its part


@dataclass(frozen=True)
class NoteSection:
    """A piece of a report: its heading (lower case), the part it is of, and where it stands: text[start:end]."""

    heading: str
    part: str
    start: int
    end: int
    text: str


@lru_cache(maxsize=2048)  # a report is ranked for many questions
def split_sections(text: str, own: Own = ()) -> tuple[NoteSection, ...]:
    """The sections of a report in order; together they hold all of it but the headings. One that knows no heading is
    a single section `HEAD`. own: headings of a source of its own, and what they mean."""
    headings = _headings(text, own)
    first = headings[0].start if headings else len(text)
    cut = _head(text, first)
    for number, heading in enumerate(headings, 1):
        end = headings[number].start if number < len(headings) else len(text)
        if heading.part == "demography":
            cut += _head(text, end, heading.end)
        else:
            cut.append((heading.name, heading.part, heading.end, end))
    sections = []
    for name, part, start, end in cut:
        body = text[start:end].strip()
        if body:
            begin = text.index(body, start)
            sections.append(NoteSection(name, part, begin, begin + len(body), body))
    return tuple(sections)


def unknown_headings(text: str, own: Own = ()) -> tuple[str, ...]:
    """The headings of a report whose meaning is unknown, as they are written."""
    return tuple(heading.name for heading in _headings(text, own) if heading.kind == UNKNOWN)


def _head(text: str, end: int, start: int = 0) -> list[tuple[str, str, int, int]]:
    """Who the patient is, without the date of the discharge."""
    late = DISCHARGE_DATE.search(text, start, end)
    if late is None:
        return [(HEAD, "demography", start, end)]
    return [
        (HEAD, "demography", start, late.start()),
        ("discharge date", "discharge", late.start(), late.end()),
        (HEAD, "demography", late.end(), end),
    ]


def _headings(text: str, own: Own) -> list[Heading]:
    """The lines that begin a section. Phases follow each other: a main heading of an earlier phase within a later one
    ("Medications:" in the instructions) is part of the text there."""
    headings = find_headings(text, dict(own))
    if not any(heading.telling for heading in headings):
        visits = [m for m in VISIT_LINES.finditer(text)]
        if visits or not headings:
            return _in_phases(
                [Heading(m["heading"].lower(), VISIT_HEADINGS[m["heading"].lower()], "main", m.start(), m.end())
                 for m in visits]
            )  # fmt: skip
    return _in_phases(headings)


def _in_phases(headings: list[Heading]) -> list[Heading]:
    kept: list[Heading] = []
    reached = 0  # by main headings
    for heading in headings:
        phase, before = _phase(heading.part), kept[-1].kind if kept else ""
        if heading.part == "demography" and (not kept or kept[-1].part == "demography"):
            continue  # one more line about who the patient is
        if reached == 2 and (heading.kind != "main" or phase < 2):
            continue
        if heading.kind == "main":
            # an examination under a heading of a later phase is the one of that phase
            if phase < reached or (before == LATE and phase == 0 and heading.part != "treatment"):
                continue
            reached = phase
        elif before == LATE or (before == UNKNOWN and heading.kind != LATE):
            continue
        elif heading.kind == "minor" and kept and kept[-1].part == heading.part:
            continue  # "Labs:" within the results
        kept.append(heading)
    return kept


def _phase(part: str) -> int:
    # the procedure stands early in a report, though it is of the stay
    return {"progress": 1, "discharge": 2, "instructions": 2}.get(part, 0)


def section_text(sections: tuple[NoteSection, ...], *headings: str) -> str:
    """Text of the sections with one of these headings."""
    return "\n".join(section.text for section in sections if section.heading in headings)


def sentences(text: str) -> list[str]:
    """Sentences and lines of a text, without blanks around them."""
    pieces = (sentence.strip() for line in text.split("\n") for sentence in segment("en", line))
    return [sentence for sentence in pieces if sentence]


def background(sections: tuple[NoteSection, ...], parts: tuple[str, ...], budget: int) -> str:
    """What may be shown of a report: `parts` without sentences of hindsight, at most `budget` words; where that is too
    few, the longest sections are cut first."""
    texts = []
    for section in sections:
        if section.part in parts:
            kept = [line for line in section.text.split("\n") if line.strip()]
            lines = [" ".join(s for s in sentences(line) if not HINDSIGHT.search(s)) for line in kept]
            texts.append((section.heading, " ".join(line for line in lines if line).split()))
    limit = longest_allowed([len(words) for _, words in texts], budget)
    return "\n".join(f"{heading}: {' '.join(words[:limit])}" for heading, words in texts if words[:limit])


def longest_allowed(lengths: list[int], budget: int) -> int:
    """The largest limit for which the lengths, cut at it, add up to at most `budget`."""
    left, limit = budget, 0
    for place, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - place)
        if length > share:
            return share
        limit, left = length, left - length
    return limit
