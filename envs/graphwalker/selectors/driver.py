"""Plays many selectors at once against one scorer: whatever they ask for now is answered in one batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from ghar.envs.generators import Returned, resume
from ghar.envs.graphwalker.selectors.protocol import Ask, Play


class Scorer(Protocol):
    """Answers asks in order; an answer depends on its ask alone."""

    def answer(self, asks: Sequence[Ask]) -> list[Any]: ...


def drive(
    starts: Sequence[Callable[[], Play]], scorer: Scorer, in_flight: int, on_done: Callable[[], None] = lambda: None
) -> list[Any]:
    """What each generator returns, in order; at most `in_flight` of them are under way at once."""
    results: dict[int, Any] = {}
    live: dict[int, tuple[Play, Ask]] = {}
    waiting = list(enumerate(starts))[::-1]

    def go_on(number: int, play: Play, answer: Any) -> None:
        asked = resume(play, answer)
        if not isinstance(asked, Returned):
            live[number] = play, asked
            return
        live.pop(number, None)
        results[number] = asked.value
        on_done()

    while waiting or live:
        while waiting and len(live) < in_flight:
            number, start = waiting.pop()
            go_on(number, start(), None)
        if not live:
            continue
        asked = list(live.items())
        for (number, (play, _)), answer in zip(asked, scorer.answer([ask for _, (_, ask) in asked]), strict=True):
            go_on(number, play, answer)
    return [results[number] for number in range(len(starts))]
