"""What an update costs as processes become more: processor seconds of all of them, for the same episodes in all.

A run of `+experiment=quick` under torchrun (gloo) with 1, 3 and 10 processes, once with `UPDATES[0]` updates of
`EPISODES` episodes and once with `UPDATES[1]`: what the longer one takes more is the updates' own, free of start and
evaluation. Waiting is passive and counts nothing, so that ten processes can be counted on two cores. An exponent of 0
is a cost that does not grow with the processes; 1 is one that each process has anew.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROCESSES, UPDATES, EPISODES = (1, 3, 10), (2, 10), 120
ROOT = Path(__file__).resolve().parents[1]


def processes(folder: Path, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Processor seconds of an update, of the rest of a run and of a process, and the exponents fitted to the first."""
    from benchmarks.growth import exponent

    costs: dict[str, Any] = {}
    updates: list[float] = []
    for count in PROCESSES:
        short, long = (_run(folder / f"{count}-{many}", count, many, overrides, timeout) for many in UPDATES)
        updates.append((long - short) / (UPDATES[1] - UPDATES[0]))
        rest = short - UPDATES[0] * updates[-1]
        costs[f"{count} processes"] = {"an update": updates[-1], "the rest": rest, "the rest, a process": rest / count}
        print(f"{count} processes: {costs[f'{count} processes']}", flush=True)
    costs["exponent"] = exponent(list(PROCESSES), updates)
    return costs | {"load average": os.getloadavg()[0]}


def _run(run: Path, count: int, updates: int, overrides: Sequence[str], timeout: float) -> float:
    """Processor seconds of a whole run and all of its processes."""
    words = [
        sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count),
        str(ROOT / "launch" / "train.py"), "+experiment=quick", f"trainer.rl.updates={updates}",
        f"trainer.rl.episodes={EPISODES}", f"trainer.rl.eval_every={updates}", f"trainer.rl.save_every={updates}",
        "trainer.warmup.batch=60", "trainer.warmup.micro_batch=6", "eval.variants=[scripted]", "threads=1",
        f"run_dir={run}", "resume=never", *overrides,
    ]  # fmt: skip
    before = _spent()
    subprocess.run(words, check=True, timeout=timeout, env=os.environ | {"OMP_WAIT_POLICY": "PASSIVE"})
    return _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
