"""Where a reply says what its answer is: after its last "answer:", unless that is denied, supposed or taken back.

All functions take lower-case text and read at most its last `MOST` characters, so their time does not grow with it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MOST = 50_000  # characters of a reply that are read; a prompt's budget of 4,096 tokens gives half as many
MOST_EARLIER = 8  # answers before the last that are looked at
LINE = 500  # of an answer's line
# "answer:" as models write it: **Answer:** yes, "answer": "yes", The answer is: yes, <answer>yes</answer>, a heading
ANSWER = re.compile(
    r"\banswer(?:[*_`\"']{0,3}[ \t]{0,2}(?:[(\[][^()\[\]\n:]{0,30}[)\]][*_`]{0,3}[ \t]{0,2})?"
    r"(?:(?:is|(?:would|will|should) be)[ \t]{0,2})?[:：=][*_`]{0,3}|(?<=<answer)>|[*_#]{0,4}[ \t]{0,2}\n)"
)
END = re.compile(r"\n|</answer>")  # of an answer's line
HEADING = re.compile(r"[#*_>\s\d.)]{0,10}(?:(?:final|my|the)\s)?")
DECORATION = re.compile(r"[\s#*_`>\"'{(\[\d.)-]{0,20}(?:(?:so|thus|therefore|hence|final|my|the),?\s)*")
# Words that turn "answer:" round when they stand in its clause, and those that refuse or suppose it anywhere in its
# sentence.
DENIED = re.compile(
    r"\b(?:no|not|never|neither|nor|without|wrong|incorrect|false|hardly|instead|rather|if|whether|unless|suppose|"
    r"assuming|example|instance|format|form|template|like|such|either|opposite|contrary|reverse|disagree|reject|refute|"
    r"refuse|decline|avoid|withhold|dispute|(?:anything|everything|all) but)\b|n['’]t\b"
)
ATTRIBUTED = re.compile(  # to someone else: "my colleague's answer:", "the model said answer:"
    r"\b(?!(?:let|here|that|there|it|what|today)['’]s\b)\w{1,30}['’]s\s(?:\w{1,30}\s)?$|"
    r"\b(?:his|her|their|others?|previous|earlier|former|said|says|claim(?:s|ed)|wrote|writes|answered|suggest(?:s|ed)|"
    r"thinks|believes|quote[sd]?)(?:\s(?:that|the|an?))?:?[\s\"'“]{1,3}$"
)
REFUSED = re.compile(
    r"\b(?:cannot|can ?not|unable|refuse|decline|impossible|not able|if|unless|whether|suppose|assuming|for example|"
    r"for instance|format|template)\b|\b(?:ca|wo)n['’]t\b"
)
JSON_KEY = re.compile(r"[{,]\s*[\"']$")  # before the word answer
# Words that correct what was said before them, with another label behind them; those that take it back by themselves.
CORRECTED = re.compile(
    r"\b(?:wait|actually|correction|sorry|oops|hmm|edit|erratum|on (?:second thoughts?|reflection)|i mean(?:t)?|"
    r"instead|rather|revis(?:e|ed|ing)|reconsider(?:ing)?|mistake|however|p\.?s|scratch|strike|"
    r"read (?:that|this|it|the above)|make (?:that|it)|should (?:be|have been|read|say)|opposite)\b"
)
WITHDRAWN = re.compile(
    r"\b(?:ignore (?:that|this|the above|my)|disregard|(?:scratch|strike|forget) that|take (?:that|it|this) back|"
    r"(?:withdraw|retract|revoke|take back) (?:that|it|this|my|the)|chang(?:e|ed|ing) my (?:mind|answer)|"
    r"i was (?:wrong|mistaken)|(?:that|this|it)(?: is| was|['’]s) (?:wrong|incorrect|not (?:right|correct|true)|"
    r"(?:only |just )?an? (?:mistake|joke|placeholder|dummy|test|example|guess))|"
    r"(?:only|just|was) (?:kidding|joking))\b"
)
# Where a reply goes on with another case, as a model does that continues its examples.
NEXT_CASE = re.compile(
    r"\n[#*\s\[<|]{0,8}(?:patient|example|question|record|case|user|human|system|assistant|task)\b[^\n:]{0,30}(?::|\n)"
)


@dataclass(frozen=True)
class StatedAnswer:
    """An answer of a reply. text: what follows "answer:", to the end of the line. begin: of the word; end: of the
    line."""

    text: str
    begin: int
    end: int


def small(text: str) -> str:
    """`text` in lower case, every letter at its place (one letter of Unicode becomes two)."""
    return text.replace("\u0130", "I").lower()


def last_answer(text: str) -> StatedAnswer | None:
    """The last "answer:" of a lower-case text; None where there is none, or where it is denied."""
    matches = [match for match in ANSWER.finditer(text, max(0, len(text) - MOST)) if _stands(text, match)]
    return None if not matches or denied(text[: matches[-1].start()][-LINE:]) else _read_answer(text, matches[-1])


def earlier_answers(text: str, last: StatedAnswer) -> list[StatedAnswer]:
    """The ones before it, at most the last `MOST_EARLIER`, none that is denied."""
    matches = [match for match in ANSWER.finditer(text, max(0, len(text) - MOST), last.begin) if _stands(text, match)]
    return [_read_answer(text, match) for match in matches[-MOST_EARLIER:] if not denied(text[: match.start()][-LINE:])]


def _stands(text: str, match: re.Match[str]) -> bool:
    """Whether it says what the answer is: with a line end in place of a colon it must be a heading."""
    if not match[0].endswith("\n"):
        return True
    line = max(text.rfind("\n", 0, match.start()) + 1, match.start() - LINE)
    return HEADING.fullmatch(text, line, match.start()) is not None


def _read_answer(text: str, match: re.Match[str]) -> StatedAnswer:
    rest = text[match.end() : match.end() + LINE]
    begin = match.end() + len(rest) - len(rest.lstrip())
    stop = END.search(text, begin, begin + LINE)
    end = stop.start() if stop else min(len(text), begin + LINE)
    return StatedAnswer(text[begin:end], match.start(), end)


def denied(before: str) -> bool:
    """Whether the words right before an "answer:" deny it, refuse it, or only suppose it."""
    before = before[-LINE:].lower()
    head, _, line = before.rpartition("\n")
    if DECORATION.fullmatch(line):  # it begins its line: only an announcement above it can deny it
        above = head.rstrip()
        if not above.endswith(":"):
            return False
        line = above[:-1].rpartition("\n")[2]
    sentence = re.split(r"[.;!?]\s", line)[-1]
    clause = re.split(r"[,—:]", sentence)[-1]
    if DENIED.search(clause) or ATTRIBUTED.search(sentence):
        return True
    return not JSON_KEY.search(sentence) and REFUSED.search(sentence) is not None
