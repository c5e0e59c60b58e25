"""Reading what a model said. Nothing here raises: a reply maps to a value or to a named format error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from ghar.episode import Parsed


@dataclass(frozen=True)
class PathChoice:
    """Meta-path ids read from a reply: valid distinct ones, and how many were wrong or repeated (Eq. 8, GHAR)."""

    ids: tuple[int, ...]
    errors: int = 0
    duplicates: int = 0


def parse_label(reply: str, labels: Sequence[str]) -> Parsed:
    """Index of the one label the reply names.

    Reads, in this order: the whole reply, the text after the last "answer:", a label standing alone as a word.
    Errors: "empty", "no_label", "ambiguous_label" (several different labels).
    """
    text = reply.strip().lower()
    if not text:
        return Parsed(None, "empty")
    tail = text.rsplit("answer:", 1)[-1].strip().strip(".*\"'` ")
    lowered = [label.lower() for label in labels]
    if tail in lowered:
        return Parsed(lowered.index(tail))
    words = set(re.findall(r"[a-z0-9]+", tail))
    found = [i for i, label in enumerate(lowered) if label in words]
    if len(found) == 1:
        return Parsed(found[0])
    return Parsed(None, "ambiguous_label" if found else "no_label")


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
    queries: list[str] = []
    for part in re.split(r"[;\n]", reply):
        query = re.sub(r"^\s*(?:[-*]|\d+[.)](?!\d))\s*", "", part).strip()
        if query and query not in queries:
            queries.append(query)
    return Parsed(tuple(queries[:limit]), None if queries else "no_query")


def parse_query(reply: str) -> Parsed:
    """The first sub-query of the reply."""
    parsed = parse_queries(reply, 1)
    return Parsed(parsed.value[0] if parsed.value else "", parsed.error)


def parse_choice(reply: str, choices: Sequence[str]) -> Parsed:
    """One of `choices`; engines restrict the reply to them, other policies may not. Error: "not_a_choice"."""
    text = reply.strip().lower()
    return Parsed(text) if text in choices else Parsed(None, "not_a_choice")
