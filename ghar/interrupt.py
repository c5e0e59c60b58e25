"""Ctrl-C and the scheduler's SIGTERM: a step under way is finished and saved before the process ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TypeVar

S = TypeVar("S")
T = TypeVar("T")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
EXIT = 130  # of a process that was asked to stop, as shells have it for Ctrl-C
POLL = 0.5  # seconds between two looks at a child process


def stop_on_terminate() -> None:
    """Let SIGTERM raise KeyboardInterrupt, as SIGINT does, so that nothing is left half."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.default_int_handler)


def wait_for(child: subprocess.Popen[bytes]) -> int:
    """Return the exit code of a child process; Ctrl-C ends the waiting.

    Polars installs its own handler of SIGINT, with SA_RESTART: from then on a wait without a limit goes on after it.
    """
    while True:
        try:
            return child.wait(POLL)
        except subprocess.TimeoutExpired:
            pass


def map_in_threads(pool: ThreadPoolExecutor, function: Callable[[S], T], items: Iterable[S]) -> list[T]:
    """`pool.map` whose waiting Ctrl-C ends (`wait_for`). What has not begun is cancelled where one raises."""
    futures = [pool.submit(function, item) for item in items]
    try:
        return [next(iter(first_done([future]))).result() for future in futures]
    finally:
        for future in futures:
            future.cancel()


def first_done(futures: Collection[Future[T]]) -> set[Future[T]]:
    """Wait until one of some futures is done, and return all that are; Ctrl-C ends the waiting (`wait_for`)."""
    done: set[Future[T]] = set()
    while futures and not done:
        done = wait(futures, POLL, FIRST_COMPLETED).done
    return done


def stop_group(child: subprocess.Popen[bytes], grace: float) -> None:
    """Ask a child that leads a process group to stop with its group; kill them where it still runs after `grace`
    seconds."""
    _signal_group(child, signal.SIGTERM)
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        _signal_group(child, signal.SIGKILL)
        child.wait()


def _signal_group(child: subprocess.Popen[bytes], number: int) -> None:
    """Signal the group of a child. A group that has ended is no error."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, number)


@contextmanager
def explain_interrupt(then: str) -> Iterator[None]:
    """For the duration, whoever stops the work leaves with this sentence in place of the launcher's own."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(then) from None


@contextmanager
def finishing(what: str) -> Iterator[Callable[[], bool]]:
    """For the duration a first signal is only noted: the function that is yielded tells of it, and whoever asks saves
    and stops. A second one stops at once. what: is finished, for the message. Outside the main thread nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    asked = False

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        print(f"Stopping: {what} is finished and saved first; once more stops at once.", file=sys.stderr, flush=True)

    before = {one: signal.signal(one, note) for one in SIGNALS}
    try:
        yield lambda: asked
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
