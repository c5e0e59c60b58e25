"""The items that a discharge plan lists, and whether two names mean the same thing."""

from __future__ import annotations

import re

from ghar.data.sections import Section, section_text, sentences

BULLET = re.compile(r"^\s*(?:\d+[.)]\s*|[-*#•]+\s*)")
NUMBERED = re.compile(r"^\s*\d+[.)]\s+\S")
LABEL = re.compile(r"^[^:]{0,40}:\s*$")  # "Primary diagnosis:" above a list
BLANK = re.compile(r"^[\s_.\-=]*$")
NOTHING = re.compile(r"^(none|n/a|not applicable|deceased|expired|see below)\W*$", re.IGNORECASE)
DOSE = re.compile(
    r"\s+(?:[\d.,/]+\s*(?:mg|mcg|g|ml|unit|units|%|meq|puff|tab|cap|drop|-)|[\d.,]+\s|(?:po|iv|sc|im|pr|sl|ih|td|ng)\b"
    r"|\(.*|\[.*).*$",
    re.IGNORECASE,
)
MUTE = frozenset(
    "a an and at by due for in initial mention nos not elsewhere classified of on or other primary secondary site the "
    "to type unspecified with without".split()
)
POINTS = 4  # pieces of advice an instruction question needs (Appendix A.1, EXPRAG)


def diagnoses(sections: tuple[Section, ...]) -> tuple[str, ...]:
    """The diagnoses at discharge, each once."""
    return _items(section_text(sections, "discharge diagnosis", "discharge diagnoses"), numbered=False)


def medications(sections: tuple[Section, ...]) -> tuple[str, ...]:
    """The drugs to go home with, by name without dose, each once."""
    found = _items(section_text(sections, "discharge medications"), numbered=True)
    return _once(tuple(DOSE.sub("", item).strip(" ,;") for item in found))


def instructions(sections: tuple[Section, ...]) -> tuple[str, ...]:
    """The pieces of advice after the discharge, each once."""
    return _once(tuple(BULLET.sub("", s).strip() for s in sentences(section_text(sections, "discharge instructions"))))


def _items(text: str, numbered: bool) -> tuple[str, ...]:
    """One item a line; a list with numbers has wrapped lines and remarks between, which are left out."""
    lines = [line for line in text.split("\n") if not LABEL.match(line)]
    if numbered and any(NUMBERED.match(line) for line in lines):
        lines = [line for line in lines if NUMBERED.match(line)]
    pieces = [BULLET.sub("", piece).strip(" .,\t") for line in lines for piece in line.split(";")]
    return _once(tuple(pieces))


def _once(items: tuple[str, ...]) -> tuple[str, ...]:
    kept: dict[str, str] = {}
    for item in items:
        if not BLANK.match(item) and not NOTHING.match(item):
            kept.setdefault(" ".join(sorted(essence(item))) or item.lower(), item)
    return tuple(kept.values())


def essence(name: str) -> frozenset[str]:
    """The words of a name that tell it from others."""
    return frozenset(re.findall(r"[a-z0-9]+", name.lower())) - MUTE


def same(one: str, other: str) -> bool:
    """Whether two names may mean the same thing: all telling words of one are words of the other. Where the paper asks
    GPT-4o, this rule errs on the side of the same, so that no option is wrong by wording alone."""
    a, b = essence(one), essence(other)
    return (a <= b or b <= a) if a and b else one.lower() == other.lower()
