"""Faults of disks, signals and command lines end in a sentence, and nothing is lost."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ghar.disk import REASONS, explain_disk_error
from ghar.errors import BadInput, fate
from ghar.interrupt import finishing, first_done, map_in_threads
from ghar.launch.entry import check
from ghar.trainers.runs.resume import occupied
from tests.running import ends, run_python, started

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("number", REASONS)
def test_a_disk_s_fault_is_told_whoever_met_it(number: int):
    error = OSError(number, os.strerror(number), "/data/file.npy")
    wrapped = RuntimeError("saving failed")
    wrapped.__cause__ = error
    for one in (error, wrapped):
        assert str(explain_disk_error(one)).startswith("/data/file.npy ")
    assert explain_disk_error(OSError(errno.ENOENT, "gone", "x")) is None
    assert explain_disk_error(ValueError("x")) is None


def test_memory_and_engines_that_end_are_told_whoever_met_it():
    class EngineDeadError(Exception):
        """As vLLM's is called."""

    cpu = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")
    for error in (MemoryError(), EngineDeadError("EngineCore encountered an issue.\nSee stack trace"), cpu):
        wrapped = RuntimeError("the update failed")
        wrapped.__cause__ = error
        assert str(fate(error)) == str(fate(wrapped)) and "start the same command again" in str(fate(error))
        assert "\n" not in str(fate(error))
    assert fate(RuntimeError("shapes differ")) is None and fate(ValueError("memory")) is None


@pytest.mark.parametrize("word", ["glob(*)", "glob([a*,b*],exclude=c)"])
def test_glob_is_refused_in_a_sentence(word: str):
    for key in ("seed", "task", "eval.variants", "system.top_k"):
        with pytest.raises(BadInput, match="name the values one by one"):
            check([f"{key}={word}"])


@pytest.mark.slow
def test_a_launcher_that_cannot_write_says_so(tmp_path: Path):
    (tmp_path / "file").write_text("")
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "import ghar.launch.entry as entry\n"
        "def job(config): raise OSError(30, 'Read-only file system', '/runs/x')\n"
        "entry.launch(job)"
    )
    done = run_python("-c", code, f"run_dir={tmp_path}")
    assert done.returncode == 2 and "/runs/x cannot be written, its disk is read-only" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_a_process_says_what_happened_to_it_alone(tmp_path: Path):
    """Under torchrun process 0 speaks for all, but not for one that lost the others, which may be process 0 itself."""
    code = (
        "import sys; sys.path.insert(0, '.')\n"
        "import ghar.launch.entry as entry\n"
        "def job(config): raise RuntimeError('[pair.cc:534] Connection closed by peer [10.0.0.2]:3871')\n"
        "entry.launch(job)"
    )
    done = run_python("-c", code, f"run_dir={tmp_path}", env={"RANK": "1"})
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "Another process of this run has ended: see what it says, then start the same command again" in done.stderr


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C as a terminal has it; a job in the background of a script is started with SIGINT ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_waits_for_the_step_and_a_second_one_does_not(sent: signal.Signals):
    with finishing("this step") as asked:
        assert not asked()
        os.kill(os.getpid(), sent)
        assert asked()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), sent)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    inside: list[bool] = []

    def other() -> None:
        with finishing("this step") as asked:
            inside.append(asked())

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert inside == [False]


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_launcher_leaves_with_130(tmp_path: Path, sent: signal.Signals):
    code = (
        "import sys, time; sys.path.insert(0, '.')\n"
        "import ghar.launch.entry as entry\n"
        "def job(config): print('in', flush=True); time.sleep(1e6)\n"
        "entry.launch(job)"
    )
    command = [sys.executable, "-c", code, f"run_dir={tmp_path}"]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as going:
        assert going.stdout is not None and going.stdout.readline() == "in\n"
        going.send_signal(sent)
        assert ends(going.pid, lambda: going.poll() is None), "it goes on after the signal"
    assert going.stderr is not None
    said = going.stderr.read()
    assert going.returncode == 130 and said.startswith("Stopped.") and "Traceback" not in said


AFTER_POLARS = """
import subprocess, sys
import polars as pl
from ghar.interrupt import stop_group, wait_for
pl.DataFrame({"a": [1]}).lazy().select(pl.len()).collect()
child = subprocess.Popen([sys.executable, "-c", "import time; print('in', flush=True); time.sleep(600)"],
                         start_new_session=True)
try:
    wait_for(child)
except KeyboardInterrupt:
    stop_group(child, 10)
    stop_group(child, 10)  # there is no such group any more
    sys.exit(f"{child.returncode}")
"""


@pytest.mark.usefixtures("interruptible")
def test_waiting_for_a_child_ends_at_ctrl_c_once_polars_has_run():
    command = [sys.executable, "-c", AFTER_POLARS]
    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as going:
        assert going.stdout is not None and going.stdout.readline() == "in\n"
        going.send_signal(signal.SIGINT)
        assert going.wait(60) == 1
    assert going.stderr is not None and going.stderr.read().split() == [str(-signal.SIGTERM)]


IN_THREADS = """
import os, signal, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
import polars as pl
from ghar.interrupt import first_done, map_in_threads
pl.DataFrame({"a": [1]}).lazy().select(pl.len()).collect()
ends, pool, start = threading.Event(), ThreadPoolExecutor(1), time.monotonic()
for waiting in (lambda: map_in_threads(pool, ends.wait, [60, 60]), lambda: first_done([pool.submit(ends.wait, 60)])):
    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        waiting()
    except KeyboardInterrupt:
        print("stopped")
ends.set()
sys.exit(time.monotonic() - start > 30)
"""


@pytest.mark.usefixtures("interruptible")
def test_waiting_for_threads_ends_at_ctrl_c_once_polars_has_run():
    done = run_python("-c", IN_THREADS)
    assert done.returncode == 0 and done.stdout.split() == ["stopped", "stopped"], done.stderr


def test_results_of_threads_are_in_order_and_the_first_error_is_raised():
    with ThreadPoolExecutor(2) as pool:
        assert map_in_threads(pool, lambda number: time.sleep(0.01 / number) or number, [1, 2, 3]) == [1, 2, 3]
        assert map_in_threads(pool, str, []) == [] and first_done([]) == set()
        with pytest.raises(ZeroDivisionError):
            map_in_threads(pool, lambda number: 1 / number, [1, 0, 2])


@pytest.mark.slow
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_a_study_is_stopped_while_its_cell_runs(tmp_path: Path, world_cache: Path, sent: signal.Signals):
    words = ["study=ghar", "scale=tiny", "tasks=[read]", "threads=1", "data.patients=150", f"data.cache={world_cache}"]
    command = [sys.executable, "launch/study.py", *words, f"folder={tmp_path}"]

    def cell_runs() -> bool:
        return any(len(log.read_text().splitlines()) > 1 for log in tmp_path.glob("cells/*/log.txt"))

    with started(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as going:
        assert ends(going.pid, lambda: going.poll() is None and not cell_runs()) and going.poll() is None
        going.send_signal(sent)
        assert ends(going.pid, lambda: going.poll() is None), "it goes on after the signal"
    assert going.stderr is not None
    said = going.stderr.read().splitlines()
    assert going.returncode == 130 and said[-1] == "Stopped. The same command goes on from what is saved."
    assert not any("Traceback" in line for line in said)


def test_two_evaluations_of_one_folder(tmp_path: Path):
    from ghar.launch.entry import load
    from ghar.trainers.evaluation.evaluate import evaluate

    with occupied(tmp_path), pytest.raises(BadInput, match="at work in"):
        evaluate(load([f"run_dir={tmp_path}"]))


def test_a_file_system_without_locks_is_named_once_and_the_run_goes_on(tmp_path: Path, monkeypatch, capsys):
    def refuse(file: object, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("ghar.lock.fcntl.flock", refuse)
    monkeypatch.setattr("ghar.lock._named", set())
    for _ in range(2):
        with occupied(tmp_path):
            pass
    assert capsys.readouterr().err.count("this file system has no locks (flock)") == 1
