"""Two parts of an episode at once: what both ask for goes out as one tuple of effects."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any


def together(*parts: Generator[Any, Any, Any]) -> Generator[Any, Any, tuple[Any, ...]]:
    """Run generators that yield single effects side by side, step by step; returns what each of them returns.

    Everyone's next effect is asked for in one tuple, in the order of `parts`; who has ended is left out.
    """
    ended: dict[int, Any] = {}
    waiting: dict[int, Any] = {}
    sending: dict[int, Any] = dict.fromkeys(range(len(parts)))
    while True:
        for i, value in sending.items():
            try:
                waiting[i] = parts[i].send(value)
            except StopIteration as stop:
                ended[i] = stop.value
        if not waiting:
            return tuple(ended[i] for i in range(len(parts)))
        order = sorted(waiting)
        results = yield tuple(waiting[i] for i in order)
        waiting.clear()
        sending = dict(zip(order, results, strict=True))
