"""An evaluation in a process that is one of several, as torchrun would start them, and that perhaps kills itself."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghar.launch.entry import load
from ghar.trainers import sharding
from ghar.trainers.evaluation.evaluate import evaluate


def evaluate_as(rank: int, world: int, port: int, last: int, overrides: Sequence[str], screen: Path) -> None:
    """Process number `rank` of `world`. It dies before it writes its part number `last`, counted from 1; 0: never. Text
    goes to `screen`, at the end how many parts it wrote."""
    own = {"RANK": rank, "LOCAL_RANK": rank, "GROUP_RANK": 0, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
    os.environ.update({name: str(value) for name, value in own.items()}, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    with screen.open("w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w", buffering=1), os.fdopen(2, "w", buffering=1)
    write, written = sharding.write_lines, 0

    def counted(path: Path, rows: Any) -> None:
        nonlocal written
        written += 1
        if written == last:
            os.kill(os.getpid(), signal.SIGKILL)
        write(path, rows)

    sharding.write_lines = counted
    sharding.FILLED = 2  # small parts, so that there are several of few cases
    evaluate(load(overrides))
    print(f"parts written: {written}")
