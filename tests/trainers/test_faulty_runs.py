"""A training met by one fault after the other: each ends in a sentence, and the run as one that was left alone."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.kills import TINY, differences
from ghar.trainers.runs.resume import occupied
from tests.trainers.killing import launched
from tests.trainers.test_resume import Starts

pytestmark = pytest.mark.slow

Mount = Callable[[str], None]


@pytest.fixture(scope="module")
def starts() -> Starts:
    return Starts()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Mount]]:
    """A disk of its own, and what mounts it with other options."""
    place = tmp_path / "disk"
    place.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True)
    if done.returncode:
        pytest.skip("small and read-only disks need the right to mount one")

    def again(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(place)], check=True)

    yield place, again
    subprocess.run(["umount", "--lazy", str(place)], check=True)


def test_a_training_goes_on_after_every_fault(tmp_path: Path, disk: tuple[Path, Mount], starts: Starts):
    """A full disk, one that is read-only, a second process, an engine that dies within a batch, Ctrl-C within an
    update, a clock that is set back between two starts and one that jumps."""
    place, mount = disk
    whole, broken, screen = tmp_path / "whole", place / "broken", tmp_path / "screen.txt"

    def told(run: Path, fault: str | None = None) -> tuple[int, str]:
        screen.unlink(missing_ok=True)
        words = [*TINY, f"run_dir={run}", f"data.cache={tmp_path / f'cache-{run.name}'}"]
        code = starts.ended(launched, ("train", words, screen, fault))
        text = screen.read_text()
        assert "Traceback" not in text, text
        return code, text

    assert told(whole)[0] == 0
    mount("size=300k")
    code, text = told(broken)
    assert code == 2 and "is full" in text, text
    mount("ro")
    code, text = told(broken)
    assert code == 2 and "its disk is read-only" in text, text
    mount("rw,size=64m")
    with occupied(broken):
        code, text = told(broken)
    assert code == 2 and "Another process is at work in" in text
    code, text = told(broken, "engine")
    assert code == 2 and "memory of the GPU is used up: lower" in text, text
    code, text = told(broken, "interrupted")
    assert code == 130 and "Stopping: this update is finished and saved first" in text and "\nStopped." in text, text
    assert (broken / "checkpoints" / "step-1" / "manifest.json").exists()
    assert not (broken / "checkpoints" / "step-2").exists()
    for path in broken.rglob("*"):  # the clock is set back by a month between two starts
        os.utime(path, times=(time.time() + 30 * 86_400,) * 2)
    code, text = told(broken, "clock")
    assert code == 0 and "Resuming the unfinished run" in text, text
    assert not list(differences(whole, broken))


def test_tables_are_read_again_after_a_full_disk(tmp_path: Path, disk: tuple[Path, Mount], starts: Starts):
    """Outside training: what writes a cache says so too, and leaves nothing half."""
    place, mount = disk
    screen = tmp_path / "screen.txt"
    words = ["data.patients=60", f"data.cache={place}", f"run_dir={tmp_path / 'run'}"]
    for options, code, said in (("size=64k", 2, "full"), ("ro", 2, "read-only"), ("rw,size=64m", 0, "patients")):
        mount(options)
        screen.unlink(missing_ok=True)
        assert starts.ended(launched, ("prepare_data", words, screen)) == code, screen.read_text()
        assert said in screen.read_text() and "Traceback" not in screen.read_text()
    assert not [path for path in place.rglob(".*") if path.is_dir()], os.listdir(place)
