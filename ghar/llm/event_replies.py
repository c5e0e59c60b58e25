"""Reading the replies of EHR-RAG's decisions. Nothing here raises: a reply maps to a value or to a named error."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from ghar.episode import Parsed

MOST_WORDS = 15  # of a search (Fig. 5, EHR-RAG)
MARKS = " \t\n*_`\"'()[]<>."


def parse_label_number(reply: str, n_labels: int) -> Parsed:
    """The label number after the last "answer:", or the whole reply where it is a number.

    Errors: "empty"; "no_answer", nothing says what the answer is; "ambiguous_label", several numbers;
    "outside_labels", an answer that is none of 0..n_labels-1.
    """
    text = reply.strip()
    if not text:
        return Parsed(None, "empty")
    _, marker, tail = text.lower().rpartition("answer:")
    line = tail.strip().split("\n", 1)[0].strip(MARKS)
    if not marker and not re.fullmatch(r"-?\d+(\.\d+)?", line):
        return Parsed(None, "no_answer")
    if not line:
        return Parsed(None, "no_answer")
    if re.match(r"\d+\s*(?:or|and|to|,|/|-)\s*\d", line):
        return Parsed(None, "ambiguous_label")
    found = re.match(r"(\d{1,9})(?![\d.]*\d)", line)
    if found is None or int(found[1]) >= n_labels:
        return Parsed(None, "outside_labels")
    return Parsed(int(found[1]))


def parse_search(reply: str, asked: Sequence[str]) -> Parsed:
    """One new search, or "" where the reply is ENOUGH.

    Errors: "empty"; "repeated", a search that was made before (both with value ""); "too_long", which keeps its first
    `MOST_WORDS` words.
    """
    lines = [line.strip(" *`\"'-") for line in reply.split("\n")]
    line = next((line for line in lines if line), "")
    query = re.sub(r"^(?:refined\s+)?(?:search|query)\s*:\s*", "", line, flags=re.IGNORECASE)
    if not query:
        return Parsed("", "empty")
    if re.match(r"enough\b", query, re.IGNORECASE):
        return Parsed("")
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
    found: list[int] = []
    for item in _items(reply):
        text = str(item).strip().strip("\"'").casefold()
        at = place.get(text)
        if at is None and re.fullmatch(r"\d{1,6}", text) and int(text) < len(names):
            at = int(text)
        if at is not None and at not in found:
            found.append(at)
    return Parsed(tuple(found[:keep]), None if found else "no_item")


def parse_move(reply: str, n_labels: int, asked: Sequence[str]) -> Parsed:
    """ReAct's action: ("search", query) or ("answer", label).

    Errors: "empty", "no_action", and those of `parse_search` and `parse_label_number`.
    """
    if not reply.strip():
        return Parsed(None, "empty")
    # at the start of a line first: a thought may speak of searching, too
    actions = (re.search(rf"{begin}(search|answer)\s*:(.*)", reply, re.I | re.M) for begin in (r"^\W*", r"\b"))
    action = next((action for action in actions if action is not None), None)
    if action is None:
        return Parsed(None, "no_action")
    if action[1].lower() == "answer":
        label = parse_label_number(f"answer:{action[2]}", n_labels)
        return Parsed(None if label.error else ("answer", label.value), label.error)
    query = parse_search(action[2], asked)
    if not query.value:
        return Parsed(None, query.error or "no_action")
    return Parsed(("search", query.value), query.error)


def _items(reply: str) -> list[Any]:
    begin, end = reply.find("["), reply.rfind("]")
    if 0 <= begin < end:
        try:
            listed = json.loads(reply[begin : end + 1])
        except (ValueError, RecursionError):
            listed = None
        if isinstance(listed, list):
            return listed
    lines = [re.sub(r"^\s*(?:[-*]|\d+[.)])\s+", "", line) for line in re.split(r"[;\n]", reply.strip("[] \n"))]
    return lines if len(lines) > 1 else [*lines, *reply.split()]
