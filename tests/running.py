"""Commands that tests start: each in a process group of its own, waited for as long as it makes progress."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
IDLE = 240.0  # seconds
SHARE = 0.005  # of one core: a process that waits for another one uses less, one of ten on two cores more
SPENT = 600.0  # processor seconds: more than any wait of these tests needs
PROBE = 0.05  # seconds between two looks whether it has ended
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")


def run_command(
    command: Sequence[str | Path], *, cwd: Path = ROOT, env: Mapping[str, str] | None = None, idle: float = IDLE
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its exit code, stdout and stderr.

    A busy machine makes it slow, and it may be: it fails the test when the command and its descendants have used less
    than `SHARE` of a core for `idle` seconds. Whatever is left of its process group is killed at the end.
    """
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with started(command, cwd=cwd, env=env, stdout=out.fileno(), stderr=err.fileno()) as process:
            stuck = not ends(process.pid, lambda: process.poll() is None, idle)
        said = [(stream.seek(0), stream.read())[1] for stream in (out, err)]
    assert not stuck, f"{command} made no progress for {idle:g} s:\n{said[0][-3000:]}\n{said[1][-3000:]}"
    return subprocess.CompletedProcess(list(command), process.returncode, *said)


def run_python(*arguments: str | Path, processes: int = 1, **options: object) -> subprocess.CompletedProcess[str]:
    """Run this Python with `arguments`, under torchrun where there is more than one process; one thread each."""
    before = (*TORCHRUN, str(processes)) if processes > 1 else ()
    env = {**os.environ, "OMP_NUM_THREADS": "1", **options.pop("env", {})}  # type: ignore[dict-item]
    return run_command([sys.executable, *before, *map(str, arguments)], env=env, **options)  # type: ignore[arg-type]


@contextmanager
def started(command: Sequence[str | Path], **options: object) -> Iterator[subprocess.Popen[str]]:
    """Start a command as the leader of a process group, all of which is killed at the end."""
    process = subprocess.Popen(list(map(str, command)), text=True, start_new_session=True, **options)  # type: ignore
    try:
        yield process
    finally:
        _kill_group(process.pid)
        process.wait()


def wait_until(look: Callable[[], T | None], process: subprocess.Popen[str], what: str, idle: float = IDLE) -> T:
    """Look again and again until there is something to see, and return it.

    A busy machine may take long. It fails the test when the process has ended, when it and its descendants have made no
    progress for `idle` seconds, and when they have used `SPENT` processor seconds: one that turns round makes progress
    for ever.
    """
    progress = _Progress(process.pid, idle)
    while (found := look()) is None:
        assert process.poll() is None, f"no {what}: the process has ended with exit code {process.returncode}"
        assert not progress.has_ceased(), f"no {what}: the process made no progress for {idle:g} s"
        assert progress.used < SPENT, f"no {what} after {SPENT:g} s of processor time"
        time.sleep(PROBE)
    return found


def ends(pid: int, is_alive: Callable[[], bool], idle: float = IDLE) -> bool:
    """Wait until a process has ended; False when it and its descendants make no progress."""
    progress = _Progress(pid, idle)
    while is_alive():
        time.sleep(PROBE)
        if progress.has_ceased():
            return False
    return True


class _Progress:
    """Processor time of a process and its descendants, asked for once in `idle` seconds. used: as last seen."""

    def __init__(self, pid: int, idle: float) -> None:
        self.pid, self.idle, self.used, self.since = pid, idle, 0.0, time.monotonic()

    def has_ceased(self) -> bool:
        """Whether less than `SHARE` of a core was used since the last look, `idle` seconds ago."""
        if time.monotonic() - self.since < self.idle:
            return False
        before, self.used, self.since = self.used, _processor_seconds(self.pid), time.monotonic()
        return self.used - before < SHARE * self.idle


def _processor_seconds(pid: int) -> float:
    """Processor time of a process and its descendants, those that have ended included where they were waited for."""
    total = 0.0
    try:
        leader = psutil.Process(pid)
        for one in (leader, *leader.children(recursive=True)):
            times = one.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    except psutil.NoSuchProcess:
        pass
    return total


def _kill_group(leader: int) -> None:
    """End a process group. Its leader may be gone already, and the others with it."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass
