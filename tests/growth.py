"""How much more a larger piece of work takes: a ratio, which other machines and other work on them hardly change."""

from __future__ import annotations

import time
from collections.abc import Callable

RUNS = 5
TENFOLD = 25.0  # ten times the work at most so many times the processor time; all pairs of ten times would be 100


def times_as_long(small: Callable[[], object], large: Callable[[], object]) -> float:
    """Processor time of `large` over that of `small`, the least of several runs of each: other work only adds.

    Once it is below TENFOLD, `large` is not run again: further runs can only lower it.
    """
    small()  # what is imported or compiled late
    least = max(min(_seconds(small) for _ in range(RUNS)), 1e-4)
    ratio = float("inf")
    for _ in range(RUNS):
        ratio = min(ratio, _seconds(large) / least)
        if ratio < TENFOLD:
            break
    return ratio


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
