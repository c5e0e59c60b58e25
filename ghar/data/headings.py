"""Which lines of a discharge summary are headings, and of which part of it what follows is.

A heading is read by its words, not by its looks: marks around it ("**", "====", "#", "1."), case, "d/c" for discharge
and other abbreviations do not matter. Three kinds:

    main      one of the report's sections in one of its usual names
    late      speaks of the discharge or of what comes after it, wherever it stands
    minor     its words tell the part: labs, imaging, an examination on admission
    unknown   looks like a heading, and no word tells what it is of

Names of a patient's organ systems in an examination are no headings of their own, nor are problems of a hospital course
("# Pneumonia: ...").
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

HEAD = "head"  # heading of what stands before the first heading
LATE, UNKNOWN = "late", "unknown"
HEADINGS = {  # MIMIC-IV-Note's
    "chief complaint": "presenting", "history of present illness": "presenting", "past medical history": "presenting",
    "social history": "presenting", "family history": "presenting", "review of systems": "presenting",
    "physical exam": "assessment", "major surgical or invasive procedure": "treatment",
    "pertinent results": "progress", "brief hospital course": "progress", "medications on admission": "progress",
    "discharge medications": "discharge", "discharge disposition": "discharge", "discharge diagnosis": "discharge",
    "discharge diagnoses": "discharge", "discharge condition": "discharge", "facility": "discharge",
    "discharge instructions": "instructions", "followup instructions": "instructions",
}  # fmt: skip
ALSO = {  # other names of the same
    "chief complaint": ("presenting complaint", "reason for admission", "cc", "reason for hospitalization"),
    "history of present illness": ("hpi", "history of presenting illness", "present illness", "history"),
    "past medical history": ("pmh", "past history", "medical history", "past surgical history", "psh",
                             "past medical and surgical history", "past medical/surgical history"),
    "social history": ("sh", "social hx"), "family history": ("fh", "family hx"),
    "review of systems": ("ros",),
    "physical exam": ("physical examination", "pe", "exam", "examination", "exam on admission",
                      "physical exam on admission", "physical examination on admission", "admission exam",
                      "admission physical exam", "admission physical examination", "physical exam at admission"),
    "major surgical or invasive procedure": ("major surgical or invasive procedures", "procedures", "operations",
                                             "operations and procedures", "procedures performed"),
    "pertinent results": ("results", "pertinent labs and studies", "laboratory data", "laboratory results"),
    "brief hospital course": ("hospital course", "course in hospital", "hospital course by problem",
                              "summary of hospital course", "hospital course by systems", "hospital course by system"),
    "medications on admission": ("admission medications", "home medications", "medications prior to admission",
                                 "medications at home", "preadmission medications", "meds on admission"),
    "discharge medications": ("medications on discharge", "medications at discharge", "discharge meds",
                              "meds on discharge", "discharge medication list", "discharge medication"),
    "discharge diagnosis": ("diagnosis at discharge", "diagnoses at discharge", "final diagnosis", "final diagnoses",
                            "discharge dx", "diagnosis on discharge", "primary discharge diagnosis"),
    "discharge disposition": ("disposition", "disposition at discharge"),
    "discharge condition": ("condition at discharge", "condition on discharge", "condition"),
    "discharge instructions": ("instructions at discharge", "instructions on discharge", "patient instructions",
                               "discharge instruction", "instructions"),
    "followup instructions": ("followup", "follow up instructions", "followup plans", "followup appointments",
                              "recommended followup", "followup care"),
}  # fmt: skip
MAIN = {name: name for name in HEADINGS} | {other: name for name, others in ALSO.items() for other in others}
TELLING = ("brief hospital course", "discharge diagnosis", "discharge diagnoses", "discharge medications",
           "discharge instructions")  # fmt: skip  # a text with one of these is a discharge summary
DEMOGRAPHY = frozenset(
    (
        "name|patient name|patient|unit no|admission date|discharge date|date of admission|date of birth|dob|sex|"
        "gender|age|service|allergies|allergy|attending|attending physician|mrn|medical record number|"
        "generated summary|race|language"
    ).split("|")
)
SYSTEMS = frozenset(
    (
        "general|gen|appearance|heent|head|eyes|ears|nose|throat|ent|neck|cv|cor|cardiac|cardiovascular|heart|"
        "lungs|lung|pulm|pulmonary|resp|respiratory|chest|breast|back|spine|abd|abdomen|abdominal|gi|gu|rectal|"
        "pelvic|ext|extr|extremities|msk|musculoskeletal|neuro|neurologic|neurological|cns|psych|psychiatric|"
        "mental status|skin|integument|lymph|vascular|pulses|lines|access|vs|vitals|vital signs|temp|t|bp|hr|rr|"
        "spo2|o2 sat|o2|sat|weight|wt|height|ht|pain|motor|sensory|reflexes|gait|coordination|cn|cranial nerves|"
        "const|constitutional|tele|telemetry|drains|wound|incision|alcohol|tobacco|smoking|drugs|etoh|father|"
        "mother|in the ed|in ed|ed course"
    ).split("|")
)


def _slips(word: str) -> str:
    """A pattern of `word` with one letter left out, added or another, or two exchanged, as it is mistyped."""
    places = range(len(word))
    slips = {word[:i] + rest for i in places for rest in (word[i + 1 :], r"\w" + word[i + 1 :], r"[\w-]" + word[i:])}
    slips |= {word[:i] + word[i + 1] + word[i] + word[i + 2 :] for i in places[:-1]}
    return rf"\b(?:{'|'.join(sorted(slips))})\b"


ABBREVIATIONS = (
    (_slips("discharge"), "discharge"), (_slips("transitional"), "transitional"),
    (r"\bd\s?/\s?c\b|\bdc\b|\bdisch\b\.?|\bd\.c\.", "discharge"), (r"\badm\b\.?", "admission"),
    (r"\bf\s?/\s?u\b|\bfollow[- ]up\b", "followup"), (r"\bhosp\b\.?", "hospital"), (r"\bdx\b", "diagnosis"),
    (r"\s*&\s*", " and "),
)  # fmt: skip
AFTER = re.compile(
    r"\b(?:discharge|discharged|discharging|transitional|transitions?|followup|after\s?care|aftercare|postdischarge|"
    r"outpatient|dispo|disposition|dismissal|departure|leaving|going home|home going|release|sign ?out|hand ?off|"
    r"instructions?|recommend\w*|appointments?|pending|to do|todo|pcp|next steps|plan|plans|final|transfer|at home|"
    r"home with|home services?|rehab\w*|facility|prognosis|post hospital\w*|return precautions?|when to call|"
    r"predischarge|hospital exit|closing exam\w*|outcome|(?:cause|time|date) of death|death (?:note|summary)|"
    r"snf|vna|hospice|nursing home|visiting nurse|"
    r"(?:new|changed|stopped|started|continued?|held|discontinued) (?:\w+ ){0,2}(?:meds|medications?)|"
    r"(?:meds|medications?) (?:\w+ ){0,2}(?:new|changed|stopped|started|continued?|held|discontinued)|"
    r"issues for|for the (?:pcp|next|receiving)|end of (?:stay|hospital\w*)|last (?:day|exam\w*|vitals?|labs?))\b"
)
MINOR = (  # words -> part
    (re.compile(r"\badmission (?:diagnos|dx)"), "presenting"),
    (re.compile(r"\bdiagnos[ie]s\b|\bimpression\b|\bassessment\b"), "discharge"),
    (re.compile(r"\bmedications?\b|\bmeds\b"), "progress"),
    (re.compile(r"\b(?:labs?|laborator\w*|results?|imaging|studies|study|radiology|micro\w*|culture\w*|path\w*|ekg|ecg|"
                r"echo\w*|ct|cta|mri|cxr|x-?ray|ultrasound|us|cath\w*|course|icu|micu|emergency|consult\w*|treatments?)\b"),
     "progress"),
    (re.compile(r"\b(?:procedures?|operations?|surger\w*|operative)\b"), "treatment"),
    (re.compile(r"\b(?:history|complaints?|reason for|presenting|hx|allerg\w*|immuni[sz]ations?)\b"), "presenting"),
    (re.compile(r"\b(?:admission|arrival|triage|initial)\b.*\b(?:exam\w*|vitals?|physical)\b|"
                r"\b(?:exam\w*|vitals?|physical)\b.*\b(?:admission|arrival|triage|initial)\b|^on admission$"),
     "assessment"),
)  # fmt: skip
MARK = r"[*=#_~>•·|+@»«\-–—\[\](){}<.\t ]"
LINE = re.compile(
    rf"^(?P<marks>{MARK}{{0,16}}(?:\(?\d{{1,2}}[.)][ \t]*|[A-Za-z][.)][ \t]+)?{MARK}{{0,16}})"
    rf"(?P<name>[^\W\d_][^:\n]{{0,79}}?)(?P<tail>{MARK}{{0,16}})(?P<end>:|$)(?P<rest>[^\n]*)",
    re.MULTILINE,
)
LATE_LINE = re.compile(  # a sentence that begins with the later phase: "On discharge, lungs clear."
    rf"^{MARK}{{0,16}}(?:(?:at|on|upon|day|time|of|prior|to|before|by|the|status|exam\w*|vitals?|physical|labs?)[ \t]+)"
    r"{0,6}(?:discharge|d\s?/\s?c|dc|transitional issues)\b",
    re.IGNORECASE | re.MULTILINE,
)
LONGEST = 9  # words of a heading


@dataclass(frozen=True)
class Heading:
    """name: its usual one, else as it is written. kind: main, late, minor, unknown. It stands at text[start:end].
    telling: only a discharge summary has it."""

    name: str
    part: str
    kind: str
    start: int
    end: int
    telling: bool = False


def find_headings(text: str, own: Mapping[str, str]) -> list[Heading]:
    """All headings of a text in order. own: further ones, by their plain words, and the part they are of."""
    plain_own = {plain(name): part for name, part in own.items()}
    headings = {m.start(): one for m in LINE.finditer(text) if (one := _heading(m, plain_own)) is not None}
    for match in LATE_LINE.finditer(text):
        if match.start() not in headings:
            headings[match.start()] = Heading("on discharge", "discharge", LATE, match.start(), match.start())
    return [headings[start] for start in sorted(headings)]


@lru_cache(maxsize=65_536)  # reports have the same headings
def plain(name: str) -> str:
    """A heading as it is compared: lower case, without marks, abbreviations written out."""
    text = re.sub(r"[*=#_~>•·|+\[\]{}<@»«]", " ", unicodedata.normalize("NFKC", name)).lower()
    for pattern, words in ABBREVIATIONS:
        text = re.sub(pattern, words, text)
    return " ".join(re.sub(r"[^\w/' -]", " ", text).split()).strip(" -'/")


def _heading(match: re.Match[str], own: Mapping[str, str]) -> Heading | None:
    written = " ".join(match["name"].split())
    name, colon, alone = plain(written), match["end"] == ":", not match["rest"].strip(" \t*=#_~-")
    start, end = match.start(), match.start("rest") if match["end"] == ":" else match.end()
    if name in own:
        return Heading(name, own[name], "main", start, end)
    if name in MAIN and (colon or alone):
        own_name = MAIN[name] in TELLING and bool(re.search(r"discharge|course|final", name))
        return Heading(MAIN[name], HEADINGS[MAIN[name]], "main", start, end, own_name)
    marked = bool(re.search(r"[*=#_~>\[»«]", match["marks"])) or bool(match["tail"].strip(" \t-."))
    shouted = written.isupper() and len(written) > 3
    if not colon and not ((marked or shouted) and len(name.split()) <= LONGEST):
        return None
    if len(name.split()) > LONGEST or (name in DEMOGRAPHY and not AFTER.search(name.replace("discharge date", ""))):
        return Heading(HEAD, "demography", "minor", start, start) if name in DEMOGRAPHY else None
    if AFTER.search(name):
        part = "instructions" if re.search(r"instruct|followup|transition|appointment|recommend", name) else "discharge"
        return Heading(name, part, LATE, start, end)
    if name in SYSTEMS or (match["marks"].strip().startswith("#") and not alone):
        return None
    for words, part in MINOR:
        if words.search(name):
            return Heading(name, part, LATE if part == "discharge" else "minor", start, end)
    titled = written[:1].isupper() and all(w[:1].isupper() or len(w) < 4 for w in written.split())
    if alone or shouted or (marked and colon) or (titled and len(name.split()) <= 5):
        return Heading(written, "discharge", UNKNOWN, start, end)
    return None
