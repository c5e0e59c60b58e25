"""A discharge summary cut at its headings into seven parts and three phases (Appendix A.1 and A.3, EXPRAG).

    clinical profile   demography, presenting, assessment     known before the diagnosis
    in hospital        treatment, progress
    discharge plan     discharge, instructions

A section may hold text of a later phase; that piece goes to the part it belongs to: the examination at discharge, the
discharge date of the head, and issues after discharge told at the end of the hospital course. Results are of the whole
stay (the paper's Figure 7 says so), so they count as progress. Medications on admission, which stand late in a report,
are known early, but the released code counts them as progress, and so do we.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

PARTS = ("demography", "presenting", "assessment", "treatment", "progress", "discharge", "instructions")
PHASES = {"clinical profile": PARTS[:3], "in hospital": PARTS[3:5], "discharge plan": PARTS[5:]}
HEAD = "head"  # heading of what stands before the first heading
HEADINGS = {  # MIMIC-IV-Note's
    "chief complaint": "presenting", "history of present illness": "presenting", "past medical history": "presenting",
    "social history": "presenting", "family history": "presenting", "review of systems": "presenting",
    "physical exam": "assessment", "major surgical or invasive procedure": "treatment",
    "pertinent results": "progress", "brief hospital course": "progress", "medications on admission": "progress",
    "discharge medications": "discharge", "discharge disposition": "discharge", "discharge diagnosis": "discharge",
    "discharge diagnoses": "discharge", "discharge condition": "discharge", "facility": "discharge",
    "discharge instructions": "instructions", "followup instructions": "instructions",
}  # fmt: skip
VISIT_HEADINGS = {  # of notes of outpatient visits, as in aci-bench; looked for where no heading above is found
    "chief complaint": "presenting", "history of present illness": "presenting", "medical history": "presenting",
    "past history": "presenting", "past medical history": "presenting", "surgical history": "presenting",
    "social history": "presenting", "family history": "presenting", "review of systems": "presenting",
    "current medications": "presenting", "medications": "presenting", "allergies": "presenting",
    "physical examination": "assessment", "physical exam": "assessment", "exam": "assessment", "vitals": "assessment",
    "results": "progress", "impression": "discharge", "assessment": "discharge", "assessment and plan": "discharge",
    "plan": "discharge", "instructions": "instructions",
}  # fmt: skip
OWN = ("brief hospital course", "discharge diagnosis", "discharge diagnoses", "discharge medications",
       "discharge instructions")  # fmt: skip  # a text with one of these is a discharge summary


def _lines(headings: Mapping[str, str]) -> re.Pattern[str]:
    names = "|".join(sorted(headings, key=len, reverse=True))
    return re.compile(rf"^[ \t]*(?P<heading>{names})[ \t]*(?::|$)", re.IGNORECASE | re.MULTILINE)


LINES, VISIT_LINES = _lines(HEADINGS), _lines(VISIT_HEADINGS)
LATE = {  # heading -> where its text of a later phase begins, and the part that text is of
    "physical exam": (
        re.compile(r"^[ \t]*(?:(?:at|on|upon|day of)[ \t]+)?(?:discharge|d/c)\b", re.IGNORECASE | re.MULTILINE),
        "discharge",
    ),
    "brief hospital course": (re.compile(r"^\W*transitional issues", re.IGNORECASE | re.MULTILINE), "instructions"),
}  # fmt: skip
DISCHARGE_DATE = re.compile(r"Discharge Date:[^\n]*", re.IGNORECASE)
# What an earlier phase cannot know. Sentences that say so are not shown as background.
HINDSIGHT = re.compile(
    r"\b(?:discharged|(?:at|on|upon|for|prior to|before|until) discharge|"
    r"discharge (?:medication|diagnos|plan|instruction|home|to)|d/c(?:ed|'d)|(?:went|go|sent) home (?:on|with))",
    re.IGNORECASE,
)
SENTENCE_END = re.compile(r"(?<=[.!?])[ \t]+|\n+")


@dataclass(frozen=True)
class Section:
    """A piece of a report: its heading (lower case), the part it is of, and where it stands: text[start:end]."""

    heading: str
    part: str
    start: int
    end: int
    text: str


@lru_cache(maxsize=2048)  # a report is ranked for many questions
def split_sections(text: str) -> tuple[Section, ...]:
    """The sections of a report in order; together they hold all of it but the headings. One that knows no heading is
    a single section `HEAD`."""
    sections = []
    headings, found = _headings(text)
    first = found[0].start() if found else len(text)
    late = DISCHARGE_DATE.search(text, 0, first)
    cut = [(HEAD, "demography", 0, first)]
    if late is not None:
        cut = [
            (HEAD, "demography", 0, late.start()),
            ("discharge date", "discharge", late.start(), late.end()),
            (HEAD, "demography", late.end(), first),
        ]
    for number, match in enumerate(found, 1):
        heading, end = match["heading"].lower(), found[number].start() if number < len(found) else len(text)
        cut += _without_later(text, heading, headings[heading], match.end(), end)
    for heading, part, start, end in cut:
        body = text[start:end].strip()
        if body:
            begin = text.index(body, start)
            sections.append(Section(heading, part, begin, begin + len(body), body))
    return tuple(sections)


def _headings(text: str) -> tuple[Mapping[str, str], list[re.Match[str]]]:
    """The lines that are headings, and what their words mean. Phases follow each other: a heading of an earlier phase
    within a later one ("Medications:" in the instructions) is part of the text there."""
    headings, found = HEADINGS, list(LINES.finditer(text))
    if not any(match["heading"].lower() in OWN for match in found):
        headings, found = VISIT_HEADINGS, list(VISIT_LINES.finditer(text))
    kept, reached = [], 0
    for match in found:
        part = headings[match["heading"].lower()]
        # the procedure stands early in a report, though it is of the stay
        phase = {"progress": 1, "discharge": 2, "instructions": 2}.get(part, 0)
        if phase >= reached:
            kept, reached = [*kept, match], phase
    return headings, kept


def _without_later(text: str, heading: str, part: str, start: int, end: int) -> list[tuple[str, str, int, int]]:
    rule, later = LATE.get(heading, (None, ""))
    found = rule.search(text, start, end) if rule is not None else None
    if found is None:
        return [(heading, part, start, end)]
    return [(heading, part, start, found.start()), (heading, later, found.start(), end)]


def section_text(sections: tuple[Section, ...], *headings: str) -> str:
    """Text of the sections with one of these headings."""
    return "\n".join(section.text for section in sections if section.heading in headings)


def sentences(text: str) -> list[str]:
    """Sentences and lines of a text, without blanks around them."""
    return [piece.strip() for piece in SENTENCE_END.split(text) if piece.strip()]


def background(sections: tuple[Section, ...], parts: tuple[str, ...], budget: int) -> str:
    """What may be shown of a report: `parts` without sentences of hindsight, at most `budget` words; where that is too
    few, the longest sections are cut first."""
    shown = []
    for section in sections:
        if section.part in parts:
            kept = [line for line in section.text.split("\n") if line.strip()]
            lines = [" ".join(s for s in sentences(line) if not HINDSIGHT.search(s)) for line in kept]
            shown.append((section.heading, " ".join(line for line in lines if line).split()))
    limit = longest_allowed([len(words) for _, words in shown], budget)
    return "\n".join(f"{heading}: {' '.join(words[:limit])}" for heading, words in shown if words[:limit])


def longest_allowed(lengths: list[int], budget: int) -> int:
    """The largest limit for which the lengths, cut at it, add up to at most `budget`."""
    left, limit = budget, 0
    for place, length in enumerate(sorted(lengths)):
        share = left // (len(lengths) - place)
        if length > share:
            return share
        limit, left = length, left - length
    return limit
