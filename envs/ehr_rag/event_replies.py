"""Reading the replies of EHR-RAG's decisions. Nothing here raises: a reply maps to a value or to a named error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

from ghar.episode import Parsed
from ghar.llm.answer_line import LINE, MOST, denied, small
from ghar.llm.parsing import answer_line, parse_label

MOST_WORDS = 15  # of a search (Fig. 5, EHR-RAG)
MARKS = " \t\n*_`\"'()[]<>."
HEAD = re.compile(r"(?:refined\s{1,3})?(?:search|query)\s{0,3}:", re.I)  # what some models write before a search
ENOUGH = re.compile(r"enough\b\W*(?:$|(?<=[.!:;,])\s|\s[-–—]\s)", re.I)  # "enough evidence of what?" is none
SAID_ENOUGH = re.compile(r"\bENOUGH\b|^(?i:not )?(?i:enough)\b")
DECLINED = re.compile(  # words about searching, which no record holds
    r"(?:none|nothing(?: more| else| further)?|n/?a|done|stop|"
    r"no (?:\w{1,12} ){0,2}(?:search|quer|look)\w{0,5}(?: (?:is |are )?(?:needed|required|necessary))?|"
    r"(?:(?:i|we) (?:now )?have|(?:that|this|it)(?: is|['’]s)) enough(?: \w{1,20}){0,3})\W{0,3}",
    re.I,
)
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?")
ACTION = r"(search|answer)[*_`]{0,3}[ \t]{0,3}:(.*)"
BLANKS = " \t\r\n*`\"'-"  # around a search
# at the start of a line first: a thought may speak of searching, too
ACTIONS = (re.compile(rf"^[^\w\n]{{0,20}}{ACTION}", re.I | re.M | re.A), re.compile(rf"\b{ACTION}", re.I | re.A))
PLACE = re.compile(r"[0-9]{1,6}")
MARKER = re.compile(r"\s*(?:[-*]|[0-9]+[.)])\s+")


def parse_label_number(reply: str, n_labels: int) -> Parsed:
    """The label number after the last "answer:", or the whole reply where it is a number; see `parse_label`.

    Errors: "empty"; "no_answer", nothing says what the answer is; "ambiguous_label", several numbers;
    "outside_labels", an answer that is none of 0..n_labels-1.
    """
    text = reply.strip()
    if not text:
        return Parsed(None, "empty")
    line = answer_line(small(text[-MOST:]))
    label = parse_label(text, [str(i) for i in range(n_labels)])
    if label.error is None:
        return label
    if not line and (line is not None or len(text) > LINE or NUMBER.fullmatch(text.strip(MARKS)) is None):
        return Parsed(None, "no_answer")
    return Parsed(None, "outside_labels") if label.error == "no_label" else label


def parse_search(reply: str, asked: Sequence[str]) -> Parsed:
    """One new search, the first line that is not blank, or "" where that is ENOUGH.

    Errors: "empty"; "repeated", a search that was made before; "unclear", a line that says ENOUGH among other words, or
    that it searches nothing in its own (all with value ""); "too_long", which keeps its first `MOST_WORDS` words.
    """
    line = reply[:MOST].lstrip(BLANKS).partition("\n")[0].strip(BLANKS)
    match = HEAD.match(line)
    query = line[match.end() :].strip(BLANKS) if match else line
    if not query:
        return Parsed("", "empty")
    if ENOUGH.match(query):
        return Parsed("")
    if SAID_ENOUGH.search(query) or DECLINED.fullmatch(query):
        return Parsed("", "unclear")
    words = query.split()
    query = " ".join(words[:MOST_WORDS])
    if query.casefold() in {old.casefold() for old in asked}:
        return Parsed("", "repeated")
    return Parsed(query, "too_long" if len(words) > MOST_WORDS else None)


def parse_items(reply: str, names: Sequence[str], keep: int) -> Parsed:
    """Places in `names` of up to `keep` different items of a JSON list, or of a list by lines, semicolons or blanks.

    An item is a name, letter by letter but for case, or its number in the list. Error: "no_item", nothing in the reply
    is one.
    """
    place: dict[str, int] = {}
    for i, name in enumerate(names):
        place.setdefault(name.strip().casefold(), i)
    items: list[int] = []
    for item in _items(reply):
        text = str(item).strip().strip("\"'").casefold()
        at = place.get(text)
        if at is None and PLACE.fullmatch(text) and int(text) < len(names):
            at = int(text)
        if at is not None and at not in items:
            items.append(at)
        if len(items) >= keep:
            break
    return Parsed(tuple(items[:keep]), None if items else "no_item")


def parse_move(reply: str, parse_answer: Callable[[str], Parsed], asked: Sequence[str]) -> Parsed:
    """ReAct's action, the first line that is one: ("search", query) or ("answer", label).

    parse_answer: of a reply from "answer:" on.

    Errors: "empty", "no_action", "several_actions" (a search and an answer), and those of `parse_search` and
    `parse_answer`.
    """
    text = reply.strip()[:MOST]
    if not text:
        return Parsed(None, "empty")
    matches = next(filter(None, ([*begin.finditer(text)] for begin in ACTIONS)), [])
    if not matches or denied(text[: matches[0].start(1)]):
        return Parsed(None, "no_action")
    if len({action[1].lower() for action in matches}) > 1:
        return Parsed(None, "several_actions")
    if matches[0][1].lower() == "answer":
        label = parse_answer(text[matches[0].start(1) :])
        return Parsed(None if label.error else ("answer", label.value), label.error)
    query = parse_search(matches[0][2], asked)
    if not query.value:
        return Parsed(None, query.error or "no_action")
    return Parsed(("search", query.value), query.error)


def _items(reply: str) -> list[Any]:
    """Items of a JSON list, or of lines or semicolons; numbers on one line may stand apart by blanks or commas."""
    reply = reply[:MOST]
    begin, end = reply.find("["), reply.rfind("]")
    if 0 <= begin < end:
        try:
            listed = json.loads(reply[begin : end + 1])
        except (ValueError, RecursionError):
            listed = None
        if isinstance(listed, list):
            return listed
    lines = [line for line in re.split(r"[;\n]", reply.strip("[] \n")) if line]
    items = [line[marker.end() :] if (marker := MARKER.match(line)) else line for line in lines]
    pieces = reply.replace(",", " ").strip("[] \n").split()
    return items if len(lines) > 1 or not all(map(PLACE.fullmatch, pieces)) else pieces
