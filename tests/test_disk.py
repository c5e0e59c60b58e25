"""A full disk is told in a sentence, whichever library met it; other errors stay what they are."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from ghar.arrays import save_arrays
from ghar.disk import explain_disk_error, make_folder, report_full_disk
from ghar.errors import BadInput
from ghar.trainers.runs.resume import occupied


def by_file() -> None:
    with open("/dev/full", "w") as file:
        file.write("x" * 100_000)


def by_torch() -> None:
    torch.save(torch.zeros(100_000), "/dev/full")


def by_safetensors() -> None:  # its own exception, as it was seen on a full tmpfs
    raise SafetensorError("Error while serializing: I/O error: No space left on device (os error 28)")


def wrapped() -> None:
    try:
        by_file()
    except OSError as error:
        raise RuntimeError("saving failed") from error


@pytest.mark.parametrize("write", [by_file, by_torch, by_safetensors, wrapped])
def test_full_disk(tmp_path: Path, write: Callable[[], None]):
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with pytest.raises(BadInput, match=r"The disk of .* is full .*: make room and start the same command again"):
        with report_full_disk(tmp_path):
            write()


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.EACCES, "no"), RuntimeError("shape mismatch")])
def test_other_errors_pass(tmp_path: Path, error: Exception):
    with pytest.raises(type(error)), report_full_disk(tmp_path):
        raise error


@pytest.mark.parametrize("number", [
    errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP, errno.EROFS, errno.EACCES,
])  # fmt: skip
def test_every_kind_of_unusable_path_is_a_sentence_that_names_it(number: int) -> None:
    sentence = explain_disk_error(OSError(number, os.strerror(number), "/data/runs"))
    assert sentence is not None and sentence.startswith("/data/runs ") and "run_dir" in sentence


def test_errors_of_sockets_stay_what_they_are() -> None:
    assert explain_disk_error(ConnectionResetError(errno.ECONNRESET, "gone")) is None
    assert explain_disk_error(TimeoutError(errno.ETIMEDOUT, "late")) is None
    assert explain_disk_error(FileNotFoundError("x")) is None


def test_paths_of_the_file_system_are_sentences(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    for attempt in (lambda: file.mkdir(), lambda: (file / "below").mkdir(), lambda: tmp_path.open("w"),
                    lambda: (tmp_path / "none" / "x").open("w"), lambda: (tmp_path / ("x" * 300)).touch()):  # fmt: skip
        with pytest.raises(OSError) as caught:
            attempt()
        sentence = explain_disk_error(caught.value)
        assert sentence is not None and str(tmp_path) in sentence


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="there is no /proc")
def test_a_file_system_without_new_folders_is_a_sentence() -> None:
    for path in (Path("/proc/x"), Path("/proc/x/y")):
        with pytest.raises(BadInput, match=f"{path} cannot be made, its file system takes no folders: name another"):
            make_folder(path)
        with pytest.raises(BadInput, match="name another run_dir"), occupied(path):
            pass


def test_old_leavings_of_killed_writers_are_removed_and_young_ones_stay(tmp_path: Path) -> None:
    """A writer that lives keeps its file whatever the clock says; what is from the future was left by another clock."""
    none = 99_999_990  # above all numbers of processes
    old, young, future = (tmp_path / f".numbers.npz.{none + i}.tmp" for i in range(3))
    other = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    alive = tmp_path / f".numbers.npz.{other.pid}.tmp"
    for path in (old, young, future, alive, tmp_path / ".numbers.npz.mine.tmp"):
        path.write_bytes(b"half")
    for path, seconds in ((old, 0), (alive, 0), (future, time.time() + 86_400)):
        os.utime(path, (seconds, seconds))
    os.utime(tmp_path / ".numbers.npz.mine.tmp", (0, 0))
    with other:
        save_arrays(tmp_path / "numbers.npz", a=np.arange(3))
        kept = {path.name for path in tmp_path.iterdir()}
        other.communicate(b"\n")
    assert kept == {young.name, alive.name, ".numbers.npz.mine.tmp", "numbers.npz"}
