"""Reading which options a reply chooses. Nothing here raises: a reply maps to a set of options or to a named error."""

from __future__ import annotations

import re
from itertools import islice

from ghar.episode import Parsed
from ghar.llm.answer_line import CORRECTED, LINE, MOST, WITHDRAWN, last_answer, small

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"  # of options; bit i of an answer stands for LETTERS[i]
SEPARATOR = re.compile(r"(?:[\s,;&/+().\[\]*\"'`-]|\band\b|\boptions?\b)+")
LETTER = r"[\s(\[*_`\"']{0,6}(?:option\s)?([A-Za-z])[.):](?=[\s*]|$)"
NAMED = re.compile(rf"(?:^|[,;]|\band\b){LETTER}")  # of items that begin with their letter
FIRST = re.compile(LETTER)
# before a letter, these leave it out, or leave open which of two it is
NOT_THIS = re.compile(
    r"\b(?:not|nor|or|except|excluding|without|than|instead of|vs\.?|versus|maybe|possibly|perhaps)\s+"
    r"(?:option\s+)?[(\[*]{0,3}[A-Za-z](?:[.):,;]|\s*$)|"
    # a range, and a letter that is said to be wrong
    r"\b[A-Za-z]\s?(?:[-–—]|\bto\b|\bthrough\b)\s?[A-Za-z]\b|"
    r"\b[A-Za-z][.):]\s*(?:wrong|incorrect|false|no|untrue|unlikely|excluded|rejected|absent)\s*(?:$|[,;.)])"
)
NUMBER = re.compile(r"(?<![\w.])[-−+]?\d[\d.,]*[^\s,;)\]]*")
SCORE = re.compile(r"((?:10|[0-9])(?:\.[0-9]+)?)[^0-9]*")
ASKED = re.compile(r"answer\s{0,3}:", re.IGNORECASE)
RESPECTS = 3


def parse_options(reply: str, count: int, single: bool) -> Parsed:
    """The chosen options of `count` as a whole number, bit i for LETTERS[i].

    Reads what stands after the last "answer:", else the last line: letters apart ("A, C"), together ("AC"), or each
    before its option's words, which only an "answer:" allows.
    Errors: "empty", "no_option" (no letters there), "unknown_option" (a letter that no option has), "several_options"
    (more than one where one is asked for), "ambiguous_option" (letters that are left out, open or taken back).
    """
    text = reply.strip()
    if not text:
        return Parsed(None, "empty")
    text = text[-MOST:]
    answer_span = last_answer(small(text))
    if answer_span is None and ASKED.search(text):
        return Parsed(None, "no_option")  # it is denied
    line = text[answer_span.end - len(answer_span.text) : answer_span.end] if answer_span else text.rpartition("\n")[2]
    line, below = line.rstrip()[:LINE], text[answer_span.end :][:LINE] if answer_span else ""
    if NOT_THIS.search(line) or WITHDRAWN.search(below.lower()) or _corrected(below) or _goes_on(line, below):
        return Parsed(None, "ambiguous_option")
    chosen = _letters([piece for piece in SEPARATOR.split(line) if piece])
    if not chosen and answer_span and FIRST.match(line):  # an option's own words may follow its letter
        chosen = "".join(NAMED.findall(line))
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


def _corrected(below: str) -> bool:
    """Whether a word of correction and a letter behind it follow an answer."""
    cue = CORRECTED.search(below.lower())
    return cue is not None and re.search(r"(?<![\w'])[A-Z](?![\w'])", below[cue.end() :]) is not None


def _goes_on(line: str, below: str) -> bool:
    """Whether an answer of a letter with its words ("A. Aspirin") is followed by a line with another letter."""
    first, second = FIRST.match(line), FIRST.match(below.lstrip())
    return first is not None and second is not None and first[1] != second[1] and len(line.split()) > 1


def _letters(pieces: list[str]) -> str:
    """The letters that pieces of a reply name, alone or as a group in order ("AC", but not "BAD"); none where a piece
    is a word."""
    groups = all(piece.isalpha() and (len(piece) == 1 or piece.isupper()) for piece in pieces)
    ordered = all("".join(sorted(set(piece))) == piece for piece in pieces)
    return "".join(pieces) if groups and ordered else ""


def parse_scores(reply: str) -> Parsed:
    """The mean of the three similarities a judge gives, 0 to 10. Errors: "empty", "no_scores" (not three numbers, or
    one outside the scale)."""
    if not reply.strip():
        return Parsed(None, "empty")
    numbers = list(islice(NUMBER.finditer(reply[:MOST]), RESPECTS + 1))
    scores = [SCORE.fullmatch(number[0].rstrip(".,")) for number in numbers]
    if len(scores) != RESPECTS or None in scores:
        return Parsed(None, "no_scores")
    return Parsed(sum(float(score[1]) for score in scores if score) / RESPECTS)
