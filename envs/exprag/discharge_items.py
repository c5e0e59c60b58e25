"""The items that a discharge plan lists, and whether two names mean the same thing."""

from __future__ import annotations

import re
from functools import lru_cache

from ghar.data.sections import NoteSection, section_text, sentences

BULLET = re.compile(r"^\s*(?:\(?\d+[.)]\s*|[-*#•>+]+\s*)")
NUMBERED = re.compile(r"^\s*\(?\d+[.)]\s+\S")
NUMBER = re.compile(r"(?:(?<=\s)|^)\(?\d{1,2}[.)]\s+(?=\S)")  # "1) A 2) B" in one line
LABEL = re.compile(r"^[^:]{0,40}:\s*$")  # "Primary diagnosis:" above a list
PREFIX = re.compile(  # and before its items
    r"^\W*(?:(?:primary|secondary|principal|other|additional|final|discharge|admission|active|acute|chronic|main|new|"
    r"continued|changed|home|surgical|medical|psychiatric|and|or)[ /]+)*(?:diagnos[ie]s|dx|problems?|conditions?|"
    r"issues?|"
    r"comorbidit(?:y|ies)|medications?|meds|primary|secondary|chronic|acute)(?:\s*\([^)]*\)|\s+list)?\s*:\s*",
    re.IGNORECASE,
)
MODIFIER = re.compile(  # what follows a comma within one name
    r"^(?:unspecified|stage|type|grade|class|acute|chronic|with|without|initial|subsequent|left|right|bilateral|severe|"
    r"mild|moderate|site|due|not|nos|other|in|of|on|at|s/p|status|likely|possible|probable|presumed|secondary|resolved|"
    r"stable|recurrent|history|including|and|or|but|now|which|both|multiple|\d)\b",
    re.IGNORECASE,
)
PIECE = 4  # words of an item of a list by commas, at most
NO_DRUG = re.compile(
    r"\b(?:lab ?work|laboratory|equipment|supplies|therapy|syringes?|needles?|glucometer|test strips?|lancets?|"
    r"wheelchair|walker|commode|dressings?|gauze|stockings|oxygen tank|blood (?:draw|test)s?)\b",
    re.IGNORECASE,
)
LETTER = re.compile(  # how a letter to the patient begins and ends
    r"^\W*(?:dear\b|sincerely|best (?:wishes|regards|of luck)|(?:kind |warm )?regards|yours\b|your\b[^.]*\bteam\b|"
    r"thank you|it (?:was|has been) (?:a|our) (?:pleasure|privilege)|we wish you|take care\W*$|"
    r"(?:mr|ms|mrs|dr)\.?\W*$)",
    re.IGNORECASE,
)
BLANK = re.compile(r"^[\s_.\-=]*$")
NOTHING = re.compile(r"^(none|n/a|not applicable|deceased|expired|see below)\W*$", re.IGNORECASE)
DOSE = re.compile(
    r"\s+(?:_{2,}|[\d.,/]+\s*(?:mg|mcg|g|ml|unit|units|%|meq|puff|tab|cap|drop|-)|[\d.,]+\s|(?:po|iv|sc|im|pr|sl|ih|td|ng)\b"
    r"|\(.*|\[.*).*$",
    re.IGNORECASE,
)
MUTE = frozenset(
    "a an and at by due for in initial mention nos not elsewhere classified of on or other primary secondary site the "
    "to type unspecified with without".split()
)
POINTS = 4  # pieces of advice an instruction question needs (Appendix A.1, EXPRAG)


def diagnoses(sections: tuple[NoteSection, ...]) -> tuple[str, ...]:
    """The diagnoses at discharge, each once."""
    return _items(section_text(sections, "discharge diagnosis", "discharge diagnoses"), numbered=False)


def medications(sections: tuple[NoteSection, ...]) -> tuple[str, ...]:
    """The drugs to go home with, by name without dose, each once."""
    items = _items(section_text(sections, "discharge medications"), numbered=True)
    return _once(tuple(DOSE.sub("", item).strip(" ,;") for item in items if not NO_DRUG.search(item)))


def instructions(sections: tuple[NoteSection, ...]) -> tuple[str, ...]:
    """The pieces of advice after the discharge, each once, without greetings."""
    points = (BULLET.sub("", s).strip() for s in sentences(section_text(sections, "discharge instructions")))
    return _once(tuple(point for point in points if not LETTER.match(point) and len(essence(point)) > 1))


def _items(text: str, numbered: bool) -> tuple[str, ...]:
    """One item a line, a number or a semicolon; of short names also a comma. A list with numbers has wrapped lines and
    remarks between, which are left out."""
    lines = [line for line in text.split("\n") if not LABEL.match(line)]
    if numbered and any(NUMBERED.match(line) for line in lines):
        lines = [line for line in lines if NUMBERED.match(line)]
    pieces = []
    for line in lines:
        bare = PREFIX.sub("", BULLET.sub("", line) if not _counted(line) else line)
        parts = NUMBER.split(bare) if _counted(bare) else [bare]
        for part in (piece for one in parts for piece in one.split(";")):
            pieces += _by_commas(part, labelled=bare != line and PREFIX.match(line) is not None)
    return _once(tuple(BULLET.sub("", piece).strip(" .,\t") for piece in pieces))


def _counted(line: str) -> bool:
    """Whether a line holds several numbered items."""
    return len(NUMBER.findall(line)) > 1


def _by_commas(text: str, labelled: bool) -> list[str]:
    """The items of a list by commas; a name that holds commas itself stays whole."""
    pieces = [re.sub(r"^and\s+", "", piece.strip(), flags=re.IGNORECASE) for piece in text.split(",")]
    listed = len(pieces) > 2 or (labelled and len(pieces) > 1)
    short = all(piece and len(piece.split()) <= PIECE and not MODIFIER.match(piece) for piece in pieces)
    return pieces if listed and short else [text]


def styled(name: str) -> str:
    """A name in the one style of all options: a sentence's case, acronyms as they are, no "unspecified" at the end."""
    bare = re.sub(
        r"[ ,]+(?:unspecified|nos|not elsewhere classified)$", "", " ".join(name.split()), flags=re.IGNORECASE
    )
    shouted = bare.isupper() and (len(bare.split()) > 1 or len(bare) > 5)
    words = [w if _acronym(w) and not shouted else w.lower() for w in bare.strip(" .,;:").split()]
    text = " ".join(words)
    return text[:1].upper() + text[1:]


def _acronym(word: str) -> bool:
    letters = [c for c in word if c.isalpha()]
    return bool(letters) and sum(c.isupper() for c in letters) > 1 and not word[1:].islower() and len(letters) <= 6


def _once(items: tuple[str, ...]) -> tuple[str, ...]:
    kept: dict[str, str] = {}
    for item in items:
        if not BLANK.match(item) and not NOTHING.match(item):
            kept.setdefault(" ".join(sorted(essence(item))) or item.lower(), item)
    return tuple(kept.values())


@lru_cache(maxsize=2**16)  # the same lines are held against many options
def essence(name: str) -> frozenset[str]:
    """The words of a name that tell it from others."""
    return frozenset(re.findall(r"[a-z0-9]+", name.lower())) - MUTE


def same(one: str, other: str) -> bool:
    """Whether two names may mean the same thing: all telling words of one are words of the other. Where the paper asks
    GPT-4o, this rule errs on the side of the same, so that no option is wrong by wording alone."""
    a, b = essence(one), essence(other)
    return (a <= b or b <= a) if a and b else one.lower() == other.lower()
