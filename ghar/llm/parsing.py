"""Reading what a model said. Nothing here raises: a reply maps to a value or to a named format error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ghar.episode import Parsed


@dataclass(frozen=True)
class PathChoice:
    """Meta-path ids read from a reply: valid distinct ones, and how many were wrong or repeated (Eq. 8, GHAR)."""

    ids: tuple[int, ...]
    errors: int = 0
    duplicates: int = 0


# "answer:" as models write it: **Answer:** yes, "answer": "yes", The answer is: yes
ANSWER = re.compile(r"\banswer[*_`\"']{0,3}[ \t]{0,2}(?:is[ \t]{0,2})?[:：=][*_`]{0,3}")
DENIED = re.compile(
    r"(?:\b(?:no|not|cannot|never|unable|wrong|incorrect|false|without)|n't)[ \t]+"
    r"(?:(?:the|an|a|any|to|give|my|correct|right|final)[ \t]+){0,4}$"
)
OPEN, CLOSE = r"[\s*_`\"'(\[]{0,6}", r"[*_`\"')\]}]{0,6}"
KIND = rf"(?:(?:class|label|category|option|number)\s{{1,2}}{OPEN})?"
END = r"(?![\w%°]|[.,]\d)"  # of a label: "4.5", "4%" and "4th" are none
REASON = re.compile(r"\b(?:because|since|given|due to|based on)\b")
# what may follow a label on its line: nothing, a stop, a gloss or a reason, but neither a word nor "/", "|", "?"
AFTER = re.compile(rf"\s*$|\s*(?:[,;:!.](?!\d)|[(\[—])|\s+[-–—]\s|\s+{REASON.pattern}")
OTHERS = r"(?:or|and|to|but|vs|versus|maybe|perhaps|possibly|rather|either|actually|mean|not|wait|then|likely|probably)"
GLOSS = re.compile(rf"\s*\((?!\s*{OTHERS}\b)([^()]*)\)")
SOON = re.compile(rf"\b{OTHERS}\W{{0,3}}$")  # before another label, this makes it another answer
ALONE = re.compile(rf"(?!\s+[^\W\d])|\s+{OTHERS}\b")  # "no" is an answer, "no doubt" is none
SPLIT, BULLET = re.compile(r"[;\n]"), re.compile(r"[-*]|\d+[.)](?!\d)")
LINE = 500  # characters of an answer's line that are read


def parse_label(reply: str, labels: Sequence[str]) -> Parsed:
    """Index of the one label the reply names, after its last "answer:", or as a reply of the bare label alone.

    After "answer:" the label comes first, and nothing on its line may make it doubtful: "answer: 3 (2 drugs)" and
    "answer: yes, no doubt" are 3 and yes, "answer: 1 or 2", "answer: not yes" and "answer: 3 days" are errors. Prose
    without "answer:" names no label, whatever words are in it.
    Errors: "empty", "no_label", "ambiguous_label" (several different labels).
    """
    text = reply.strip().lower()
    if not text:
        return Parsed(None, "empty")
    lowered = tuple(label.lower() for label in labels)
    head, mention = _grammar(lowered)
    line = answer_line(text)
    shown = text[:LINE] if line is None else line
    found = head.match(shown)
    rest = shown[found.end() :] if found else ""
    if found and (_closes(found[1], rest, mention) if line is not None else not rest.strip(" \t\n.!")):
        return Parsed(lowered.index(found[1]))
    several = len({other[0] for other in mention.finditer(shown)}) > 1
    return Parsed(None, "ambiguous_label" if several else "no_label")


def answer_line(text: str) -> str | None:
    """The first words after the last "answer:" of a lower-case text, to the end of their line; None where there is no
    "answer:" or it is denied ("I cannot answer: ...")."""
    at = text.rfind("answer")
    while at >= 0 and (found := ANSWER.match(text, at)) is None:
        at = text.rfind("answer", 0, at)
    if at < 0 or denied(text[:at]):
        return None
    return text[found.end() :].lstrip().partition("\n")[0][:LINE]


def denied(before: str) -> bool:
    """Whether the words right before an "answer:" deny it."""
    return DENIED.search(before[-60:].lower()) is not None


@lru_cache(maxsize=256)
def _grammar(labels: tuple[str, ...]) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """A label at the beginning of an answer, and any that is mentioned (any number, where labels are numbers)."""
    names = "|".join(re.escape(label) for label in sorted(labels, key=len, reverse=True)) or "(?!)"
    numbers = "|[0-9]+" if all(label.isdecimal() for label in labels) else ""
    head = rf"{OPEN}(?:(?=<(?:{names})>)<)?{KIND}({names}){END}>?{CLOSE}"
    return re.compile(head), re.compile(rf"(?<![\w.])(?:{names}{numbers}){END}")


def _closes(label: str, rest: str, mention: re.Pattern[str]) -> bool:
    """Whether what follows a label on its line leaves it the only answer."""
    gloss = GLOSS.match(rest)
    if gloss and not mention.fullmatch(gloss[1].strip()):
        rest = rest[gloss.end() :]
    if not AFTER.match(rest):
        return False
    rest = REASON.split(rest, maxsplit=1)[0]

    def rivals(other: re.Match[str]) -> bool:
        return bool(ALONE.match(rest, other.end()) or SOON.search(rest[max(0, other.start() - 20) : other.start()]))

    return not any(found[0] != label and rivals(found) for found in mention.finditer(rest))


def parse_path_ids(reply: str, n_paths: int, max_paths: int) -> Parsed:
    """`PathChoice` of the whole numbers in the reply; ids that do not exist or exceed `max_paths` are errors.

    Errors: "no_ids" when no number is there, "no_valid_id" when none of them exists.
    """
    ids: list[int] = []
    errors = duplicates = 0
    # nine digits are more than any graph has paths, and int() refuses thousands of them
    numbers = [int(number[:9]) for number in re.findall(r"0*([0-9]+)", reply)]
    for number in numbers:
        if number in ids:
            duplicates += 1
        elif number >= n_paths or len(ids) >= max_paths:
            errors += 1
        else:
            ids.append(number)
    choice = PathChoice(tuple(ids), errors, duplicates)
    if not numbers:
        return Parsed(choice, "no_ids")
    return Parsed(choice, None if ids else "no_valid_id")


def parse_queries(reply: str, limit: int) -> Parsed:
    """Up to `limit` distinct sub-queries, separated by line breaks or semicolons, list markers removed.

    Error: "no_query" when nothing is left.
    """
    queries: dict[str, None] = {}
    for part in filter(None, map(str.strip, SPLIT.split(reply))):
        marker = BULLET.match(part)
        query = part[marker.end() :].lstrip() if marker else part
        if query:
            queries.setdefault(query)
        if len(queries) >= limit:
            break
    return Parsed(tuple(queries), None if queries else "no_query")


def parse_query(reply: str) -> Parsed:
    """The first sub-query of the reply."""
    parsed = parse_queries(reply, 1)
    return Parsed(parsed.value[0] if parsed.value else "", parsed.error)


def parse_choice(reply: str, choices: Sequence[str]) -> Parsed:
    """One of `choices`; engines restrict the reply to them, other policies may not. Error: "not_a_choice"."""
    text = reply.strip().lower()
    return Parsed(text) if text in choices else Parsed(None, "not_a_choice")
