"""Which files of tests a run has to read: those with a test that its -m may ask for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations

import pytest
from _pytest.mark.expression import Expression

MARKS = frozenset({"gpu", "heavy", "nightly", "slow"})
WORDS = frozenset({"and", "not", "or"})


def named_marks(text: str) -> frozenset[str]:
    """The marks of `MARKS` that a file names; its tests have no others (`refuse_borrowed_marks`)."""
    return MARKS & set(re.findall(r"\bmark\.(\w+)", text))


def may_select(expression: str, text: str) -> bool:
    """Whether `-m expression` may select a test of the file with this text.

    What a file names in `pytestmark` all its tests have, what it names elsewhere some. True where the expression has a
    word besides `MARKS`.
    """
    if set(re.findall(r"\w+", expression)) - MARKS - WORDS or not expression:
        return True
    whole = named_marks("\n".join(re.findall(r"^pytestmark = .*", text, re.MULTILINE)))
    some = named_marks(text) - whole
    wanted = Expression.compile(expression)

    def is_wanted(marks: Iterable[str]) -> bool:
        has = whole.union(marks)
        return wanted.evaluate(lambda name, **_: name in has)

    return any(is_wanted(marks) for size in range(len(some) + 1) for marks in combinations(some, size))


def refuse_borrowed_marks(items: Iterable[pytest.Item]) -> None:
    """UsageError for a mark that a test has from elsewhere: its file would be left unread where it is asked for."""
    named: dict[str, frozenset[str]] = {}
    for item in items:
        marks = MARKS & {mark.name for mark in item.iter_markers()}
        if marks and str(item.path) not in named:
            named[str(item.path)] = named_marks(item.path.read_text())
        if marks and (borrowed := marks - named[str(item.path)]):
            raise pytest.UsageError(f"{item.nodeid} is marked {', '.join(borrowed)}: name it in {item.path.name}.")
