"""Reading an extractor's list of triples."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

from ghar.envs.kare.graph.triples import Triple, make_triple
from ghar.llm.cached_llm import LONGEST, UnreadableAnswer

INNER = re.compile(r"\[([^\[\]]*)\]")
QUOTES = " \t\n\"'`"


@dataclass(frozen=True)
class Extracted:
    """triples: different ones, in the answer's order. dropped: items of its list that are no triple (not three parts,
    an empty part, the same entity twice)."""

    triples: tuple[Triple, ...]
    dropped: int


def read_triples(text: str) -> Extracted:
    """The triples of an answer such as [["a", "treats", "b"], [b, causes, c]], whatever stands around the list.

    An empty list is an answer: there was nothing to say. Raises Unreadable: "nothing", an empty answer; "too_long", one
    of more than `LONGEST` characters; "no_list", prose; "half_list", a list that does not end; "no_triple", a list
    without a single triple.
    """
    if not text.strip():
        raise UnreadableAnswer("nothing")
    if len(text) > LONGEST:
        raise UnreadableAnswer("too_long")
    items = _items(text)
    if not items:
        return Extracted((), 0)
    made = [make_triple(*map(str, item)) if _is_three(item) else None for item in items]
    triples = tuple(dict.fromkeys(triple for triple in made if triple is not None))
    if not triples:
        raise UnreadableAnswer("no_triple")
    return Extracted(triples, made.count(None))


def _items(text: str) -> list[Any]:
    """The items of the outermost list: JSON, else brackets in brackets with commas between the parts."""
    begin, end = text.find("["), text.rfind("]")
    if begin < 0:
        raise UnreadableAnswer("no_list")
    body = text[begin : end + 1]
    try:
        listed = json.loads(body)
    except (ValueError, RecursionError):
        listed = None
    if isinstance(listed, list):
        return listed if not listed or any(isinstance(item, list) for item in listed) else [listed]
    if text.count("[") != text.count("]") or end < begin:
        raise UnreadableAnswer("half_list")
    return [[part.strip(QUOTES) for part in inner.split(",")] for inner in INNER.findall(body)]


def _is_three(item: object) -> bool:
    return isinstance(item, list) and len(item) == 3 and not any(isinstance(part, list | dict) for part in item)
