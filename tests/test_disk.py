"""A full disk is told in a sentence, whichever library met it; other errors stay what they are."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import SafetensorError

from ghar.arrays import save_arrays
from ghar.disk import full_disk_told
from ghar.errors import BadInput


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
        with full_disk_told(tmp_path):
            write()


@pytest.mark.parametrize("error", [ValueError("x"), OSError(errno.EACCES, "no"), RuntimeError("shape mismatch")])
def test_other_errors_pass(tmp_path: Path, error: Exception):
    with pytest.raises(type(error)), full_disk_told(tmp_path):
        raise error


def test_old_leavings_of_killed_writers_are_removed_and_young_ones_stay(tmp_path: Path) -> None:
    old, young = tmp_path / ".numbers.npz.11.tmp", tmp_path / ".numbers.npz.12.tmp"
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    save_arrays(tmp_path / "numbers.npz", a=np.arange(3))
    assert sorted(path.name for path in tmp_path.iterdir()) == [young.name, "numbers.npz"]
