"""Reading which options a reply chooses. Nothing here raises: a reply maps to a set of options or to a named error."""

from __future__ import annotations

import re
from itertools import islice

from ghar.episode import Parsed

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # of options; bit i of an answer stands for LETTERS[i]
SEPARATOR = re.compile(r"(?:[\s,;&/+().\[\]*\"'`-]|\band\b|\boptions?\b)+")
NAMED = re.compile(r"(?:^|[\s,;(])([A-Za-z])[.):](?=\s|$)")
WORD = re.compile(r"[\w.]+")
SCORE = re.compile(r"((?:10|[0-9])(?:\.[0-9]+)?)[^0-9]*")
RESPECTS = 3


def parse_options(reply: str, count: int, single: bool) -> Parsed:
    """The chosen options of `count` as a whole number, bit i for LETTERS[i].

    Reads what stands after the last "answer:", else the last line: letters apart ("A, C"), together ("AC"), or each
    before its option's words.
    Errors: "empty", "no_option" (no letters there), "unknown_option" (a letter that no option has), "several_options"
    (more than one where one is asked for).
    """
    text = reply.strip()
    if not text:
        return Parsed(None, "empty")
    tail = re.split(r"answer\s*:", text, flags=re.IGNORECASE)[-1].strip()
    lines = [line for line in tail.splitlines() if line.strip()]
    if not lines:
        return Parsed(None, "no_option")
    line = lines[0] if tail != text else lines[-1]
    chosen = _letters([piece for piece in SEPARATOR.split(line) if piece])
    if not chosen:  # an option's own words may follow its letter: "A. heart failure, C. sepsis"
        chosen = _letters(NAMED.findall(line))
    if not chosen:
        return Parsed(None, "no_option")
    if count <= len(LETTERS) // 2:  # small letters stand for options only where there are many
        chosen = chosen.upper()
    if any(letter not in LETTERS[:count] for letter in chosen):
        return Parsed(None, "unknown_option")
    answer = sum(1 << LETTERS.index(letter) for letter in set(chosen))
    if single and answer & (answer - 1):
        return Parsed(None, "several_options")
    return Parsed(answer)


def _letters(pieces: list[str]) -> str:
    """The letters that pieces of a reply name, alone or as a group ("AC"); none where a piece is a word."""
    groups = all(piece.isalpha() and (len(piece) == 1 or piece.isupper()) for piece in pieces)
    distinct = all(len(set(piece)) == len(piece) for piece in pieces)
    return "".join(pieces) if groups and distinct else ""


def parse_scores(reply: str) -> Parsed:
    """The mean of the three similarities a judge gives, 0 to 10. Errors: "empty", "no_scores" (not three numbers)."""
    if not reply.strip():
        return Parsed(None, "empty")
    scores = filter(None, (SCORE.fullmatch(word[0]) for word in WORD.finditer(reply)))
    found = [float(score[1]) for score in islice(scores, RESPECTS + 1)]
    return Parsed(sum(found) / RESPECTS) if len(found) == RESPECTS else Parsed(None, "no_scores")
