"""Progress of a long step: a bar on a terminal, a line every half minute and one at the end anywhere else."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import TypeVar

T = TypeVar("T")
EVERY = 30.0  # seconds between two lines of a step, where no bar can be shown
TERMINAL_WIDTH = 100  # columns of sentences and tables that are printed
_under_way: dict[str, Callable[..., None]] = {}  # `advance` of each step, by description


@contextmanager
def _bar(total: int | None, description: str) -> Iterator[Callable[[int], None]]:
    # imported only where someone watches: it takes as long as reading a small table
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as Left

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), Left())
    with Progress(*columns, console=Console(file=sys.stderr), transient=True) as bar:
        task = bar.add_task(description, total=total)
        yield lambda n: bar.advance(task, n)


@contextmanager
def progress(total: int | None, description: str, unit: str = "") -> Iterator[Callable[..., None]]:
    """Yield `advance(n=1)` for a step of `total` parts (None: unknown), for work that is not a plain loop.

    On a terminal a bar is shown while the step runs and removed after it; elsewhere a line comes every `EVERY` seconds
    ("Build index: 13 of 27 texts, 2 min left"). In both cases stderr gets one line ("Build index: 27 texts in 3.1 s")
    when the step ends, and none when it fails. unit: what is counted, in the plural. A step inside one of the same
    description, which is done part by part, counts for that one and shows nothing of its own.
    """
    if description in _under_way:
        yield _under_way[description]
        return
    done = 0
    first: tuple[float, int] | None = None  # when the first parts were done, and how many; getting ready has no pace
    start = printed = time.monotonic()
    counted = f" {unit}" if unit else ""
    silent = os.environ.get("RANK", "0") != "0"  # under torchrun one process speaks for all
    with _bar(total, description) if sys.stderr.isatty() and not silent else nullcontext() as bar:

        def advance(n: int = 1) -> None:
            nonlocal done, first, printed
            done, now = done + n, time.monotonic()
            first = first or (now, done)
            if bar is not None:
                bar(n)
            elif not silent and now - printed >= EVERY:
                printed = now
                left = left_of(now - first[0], done - first[1], (total or done) - done)
                line = f"{description}: {done}" + ("" if total is None else f" of {total}") + counted
                print(line + (f", {left}" if left else ""), file=sys.stderr, flush=True)

        _under_way[description] = advance
        try:
            yield advance
        finally:
            del _under_way[description]
    if not silent:
        print(f"{description}: {done}{counted} in {time.monotonic() - start:.1f} s", file=sys.stderr, flush=True)


def left_of(seconds: float, done: int, missing: int) -> str:
    """How long `missing` parts take where `done` took so many seconds: "2 min left"; "" where none is done yet."""
    if done <= 0:
        return ""
    left = seconds / done * missing
    if left < 90:
        return f"{left:.0f} s left"
    return f"{left / 60:.0f} min left" if left < 5400 else f"{left / 3600:.1f} h left"


def track(items: Iterable[T], description: str, total: int | None = None, unit: str = "") -> Iterator[T]:
    """Yield the items of a loop and show how far it is; `total` defaults to len(items) where that exists. unit: what
    the items are, in the plural."""
    if total is None and hasattr(items, "__len__"):
        total = len(items)  # type: ignore[arg-type]
    with progress(total, description, unit) as advance:
        for item in items:
            yield item
            advance()
