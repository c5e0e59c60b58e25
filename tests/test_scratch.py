"""The temporary folder of a command: it goes with the command, also with one that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from benchmarks.kills import TINY
from ghar.scratch import HOLDER, PREFIX, hold_folder, is_abandoned, sweep
from tests.running import run_python, started

ROOT = Path(__file__).resolve().parents[1]
COMMAND = """
import os, sys, tempfile
from pathlib import Path
from ghar.scratch import use_own_folder
use_own_folder()
use_own_folder()  # a command within a command
here = Path(tempfile.gettempdir())
assert os.environ["TMPDIR"] == str(here) and here.stat().st_mode & 0o077 == 0
(here / "kept" / "deep").mkdir(parents=True)
(here / "kept" / "deep" / "file").write_text("x")
(here / "link").symlink_to(here / "kept")
if os.fork() == 0:
    sys.exit()  # a fork's end is not the command's
os.wait()
assert (here / "link").exists()
print(here, flush=True)
if sys.argv[1:]:
    sys.stdin.readline()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, as commands see it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    return tmp_path / "tmp"


def waiting() -> AbstractContextManager[subprocess.Popen[str]]:
    return started([sys.executable, "-c", COMMAND, "wait"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def first_line(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_a_command_leaves_nothing_and_its_children_are_beside_it(place: Path, monkeypatch: pytest.MonkeyPatch):
    done = run_python("-c", COMMAND)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).parent == place and not list(place.iterdir())
    own = hold_folder(place)
    monkeypatch.setenv("TMPDIR", str(own))
    done = run_python("-c", COMMAND)
    assert Path(done.stdout.strip()).parent == place and list(place.iterdir()) == [own]


def test_what_a_killed_command_left_goes_with_the_next_one(place: Path):
    with waiting() as going, waiting() as other:
        left, alive = first_line(going), first_line(other)
        assert left.is_dir() and not is_abandoned(left)
        going.send_signal(signal.SIGKILL)
        going.wait()
        assert left.is_dir() and is_abandoned(left) and not is_abandoned(alive)
        assert run_python("-c", COMMAND).returncode == 0
        assert list(place.iterdir()) == [alive] and is_abandoned(left) and (alive / "link").exists()


def test_other_folders_stay(place: Path, tmp_path: Path):
    """Of no command, of one that has half gone, of another machine, and where a link leads."""
    own = hold_folder(place)
    prefix = own.name[: own.name.rindex("-") + 1]  # of this machine's folders
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / HOLDER).touch()
    (tmp_path / "mine" / "notes").touch()
    (place / f"{prefix}link").symlink_to(tmp_path / "mine")
    for name in ("ghar-0", f"{prefix}new", "other", f"{PREFIX}elsewhere-0", f"{prefix}led"):
        (place / name).mkdir()
    (place / f"{PREFIX}elsewhere-0" / HOLDER).touch()
    (place / f"{prefix}led" / HOLDER).symlink_to(tmp_path / "mine" / HOLDER)
    sweep(place)
    assert len(list(place.iterdir())) == 7 and (tmp_path / "mine" / "notes").exists()
    assert not is_abandoned(place / "other") and not is_abandoned(Path(""))


@pytest.mark.slow
def test_a_training_with_wandb_leaves_the_temporary_folder_empty(place: Path, tmp_path: Path):
    words = [*TINY, "logger.wandb=offline", f"run_dir={tmp_path / 'run'}", f"data.cache={tmp_path / 'cache'}"]
    done = run_python(ROOT / "launch" / "train.py", *words, env={"TMPDIR": str(place)})
    assert done.returncode == 0, done.stderr[-3000:]
    assert list((tmp_path / "run" / "wandb").glob("offline-run-*")) and not list(place.iterdir()), os.listdir(place)
