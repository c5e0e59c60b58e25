"""Training in a process that kills itself: SIGKILL before a chosen write reaches the disk, or after some seconds."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Timer
from typing import Any

import trl.trainer.sft_trainer  # noqa: F401 (the training imports it late: here it is loaded once for all starts)

from launch.entry import load
from trainers.recipe import train
from trainers.sft import run as sft

WRITES = ("fsync", "rename", "replace")  # of os: whatever must survive goes through these


def train_until(
    overrides: Sequence[str], screen: Path, write: int | None = None, seconds: float | None = None, note: Any = None
) -> None:
    """Train; die before the `write`-th durable write or after `seconds`. Text goes to `screen`; a training that ends
    leaves in `note`, an array, how many writes, seconds and seconds of processor time it took."""
    with screen.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    sft.SAVES = 1000  # the tiny SFT of the test saves a checkpoint at every point of its curve
    count = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **kwargs: Any) -> Any:
            nonlocal count
            count += 1
            if count == write:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **kwargs)

        return do

    for name in WRITES:
        setattr(os, name, counted(getattr(os, name)))
    if seconds is not None:
        timer = Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL))
        timer.daemon = True
        timer.start()
    start = time.monotonic()
    train(load(overrides))
    if note is not None:
        note[:] = count, time.monotonic() - start, time.process_time()
