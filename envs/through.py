"""An episode or a search whose effects are put in other words: examples before a prompt, sets as questions."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

T = TypeVar("T")


def through(inner: Generator[Any, Any, T], asked: Callable[[Any], Generator[Any, Any, Any]]) -> Generator[Any, Any, T]:
    """Run `inner` and return what it returns; `asked` yields effects in place of each of its own, and returns what is
    sent into it."""
    try:
        effect = next(inner)
        while True:
            effect = inner.send((yield from asked(effect)))
    except StopIteration as end:
        return end.value
