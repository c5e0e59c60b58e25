"""Training in a process that kills itself: SIGKILL before a chosen write reaches the disk, or after some seconds."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from itertools import count, cycle
from pathlib import Path
from threading import Timer
from typing import Any

import torch
import trl.trainer.sft_trainer  # noqa: F401 (the training imports it late: here it is loaded once for all starts)

from ghar.launch.entry import launch, load
from ghar.llm.hf import HFEngine
from ghar.trainers.recipe import TrainingRun, train
from ghar.trainers.sft import arguments as sft

WRITES = ("fsync", "rename", "replace")  # of os: whatever must survive goes through these


def train_until(
    overrides: Sequence[str], screen: Path, write: int | None = None, seconds: float | None = None, note: Any = None
) -> None:
    """Train; die before the `write`-th durable write or after `seconds`. Text goes to `screen`; a training that ends
    leaves in `note`, an array, how many writes, seconds and seconds of processor time it took."""
    _speak_to(screen)
    sft.SAVES = 1000  # the tiny SFT of the test saves a checkpoint at every point of its curve
    writes = 0

    def counted(call: Callable[..., Any]) -> Callable[..., Any]:
        def do(*args: Any, **kwargs: Any) -> Any:
            nonlocal writes
            writes += 1
            if writes == write:
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
        note[:] = writes, time.monotonic() - start, time.process_time()


def launched(script: str, overrides: Sequence[str], screen: Path, fault: str | None = None) -> None:
    """The command launch/<script>.py in this process, with a fault of `FAULTS` on its way."""
    _speak_to(screen)
    if fault is not None:
        FAULTS[fault]()
    sys.argv = [f"launch/{script}.py", *overrides]
    launch(importlib.import_module(f"launch.{script}").run)


def _interrupted() -> None:
    """Ctrl-C in the middle of the first update."""
    log = TrainingRun.log

    def then_stop(self: TrainingRun, row: Any) -> None:
        log(self, row)
        if row["phase"] == "rl" and row["step"] == 1:
            os.kill(os.getpid(), signal.SIGINT)

    TrainingRun.log = then_stop  # type: ignore[method-assign]


def _clock() -> None:
    """A clock that jumps by a day, forth and back, whenever it is read; that of `time.monotonic` goes on."""
    real, jumps = time.time, cycle((86_400.0, -86_400.0))
    time.time = lambda: real() + next(jumps)


def _engine() -> None:
    """An engine that runs out of memory in the middle of a batch."""
    sample, tokens = HFEngine._sample, count()

    def then_fail(self: HFEngine, rows: Any, logits: torch.Tensor) -> None:
        if next(tokens) == 5:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        sample(self, rows, logits)

    HFEngine._sample = then_fail  # type: ignore[method-assign]


FAULTS: dict[str, Callable[[], None]] = {"interrupted": _interrupted, "clock": _clock, "engine": _engine}


def _speak_to(screen: Path) -> None:
    with screen.open("a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
