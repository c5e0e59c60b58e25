"""Commands that tests start: each in a process group of its own, waited for as long as it makes progress."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[1]
IDLE = 240.0  # seconds
SHARE = 0.005  # of one core: a process that waits for another one uses less, one of ten on two cores more
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
            stuck = not _ends(process, idle)
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


def _ends(process: subprocess.Popen[str], idle: float) -> bool:
    """Wait until the process has ended; False when its tree makes no progress."""
    used, since = 0.0, time.monotonic()
    while process.poll() is None:
        time.sleep(PROBE)
        if time.monotonic() - since < idle:
            continue
        now = _processor_seconds(process.pid)
        if now - used < SHARE * idle:
            return False
        used, since = now, time.monotonic()
    return True


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
