"""Sealed folders: any change is noticed and named; half folders of killed writers are swept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ghar import seal
from ghar.errors import BadInput
from ghar.storage import WRITER, new_folder, read_array, read_meta, write_arrays, write_meta


def build(folder: Path) -> Path:
    with new_folder(folder) as half:
        write_arrays(half, {"numbers": np.arange(1000), "none": np.zeros(0)})
        (half / "part").mkdir()
        (half / "part" / "text.txt").write_text("some words")
        write_meta(half, {"format": 1})
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("sealed") / "cache")


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_flipped_bit_anywhere_is_found_or_harmless(folder: Path, data: st.DataObject):
    names = [*seal.files_below(folder), seal.SEAL]
    path = folder / data.draw(st.sampled_from(sorted(n for n in names if (folder / n).stat().st_size)))
    whole = path.read_bytes()
    at, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.integers(0, 7))
    path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
    try:
        damage = seal.fault(folder)
        if damage is None:  # whitespace of the seal: it says the same
            assert path.name == seal.SEAL
        else:
            assert str(path) in damage
            with pytest.raises(BadInput, match="build it again"):
                read_meta(folder)
    finally:
        path.write_bytes(whole)
        assert seal.fault(folder) is None


def test_missing_added_and_unsealed(tmp_path: Path):
    folder = build(tmp_path / "cache")
    (folder / "part" / "text.txt").rename(tmp_path / "aside")
    assert str(seal.fault(folder)) == f"{folder / 'part' / 'text.txt'} is missing"
    (tmp_path / "aside").rename(folder / "part" / "text.txt")
    assert seal.fault(folder) is None and read_array(folder, "numbers").sum() == 499500
    (folder / seal.SEAL).unlink()
    assert "sealed.json is missing" in str(seal.fault(folder))


def test_the_block_of_a_large_file_is_named(tmp_path: Path):
    (tmp_path / "large").write_bytes(bytes(3 * seal.BLOCK + 5))
    seal.seal(tmp_path)
    with (tmp_path / "large").open("r+b") as file:
        file.seek(2 * seal.BLOCK + 7)
        file.write(b"x")
    assert "block 3 of 4" in str(seal.fault(tmp_path))


def test_a_damaged_folder_is_named_removed_and_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    folder = build(tmp_path / "cache")
    (folder / "numbers.npy").write_bytes(b"short")
    assert not seal.sound(folder) and not folder.exists()
    assert capsys.readouterr().err.startswith(f"{folder / 'numbers.npy'} is damaged")
    assert seal.sound(build(folder)) and list(tmp_path.iterdir()) == [folder]


def test_half_folders_of_killed_writers_are_swept_and_those_at_work_stay(tmp_path: Path):
    code = (
        "import sys, time; from pathlib import Path; from ghar.storage import new_folder\n"
        f"with new_folder(Path({str(tmp_path / 'store')!r})): print('in', flush=True); time.sleep(60)"
    )
    halves = []
    for _ in range(2):
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
        assert writer.stdout is not None and writer.stdout.readline() == b"in\n"
        halves.append(writer)
    try:
        halves[0].send_signal(signal.SIGKILL)
        halves[0].wait(1800)
        old = time.time() - 3600
        for lock in tmp_path.glob(f".*/{WRITER}"):
            os.utime(lock, (old, old))
        assert len(list(tmp_path.iterdir())) == 2
        build(tmp_path / "other")
        assert len(list(tmp_path.iterdir())) == 2 and len(list(tmp_path.glob(f".*/{WRITER}"))) == 1
    finally:
        halves[1].kill()
        halves[1].wait(1800)


def test_the_first_sound_folder_stays_where_it_shall(tmp_path: Path):
    folder = build(tmp_path / "cache")
    stamp = folder.stat().st_ino
    with new_folder(folder, keep=True) as half:
        (half / "other").write_text("x")
    assert folder.stat().st_ino == stamp
    (folder / "numbers.npy").write_bytes(b"")
    with new_folder(folder, keep=True) as half:
        (half / "other").write_text("x")
    assert [path.name for path in sorted(folder.iterdir())] == ["other", seal.SEAL]


def test_who_reads_a_folder_is_not_disturbed_by_others_who_build_the_same(tmp_path: Path):
    def build_and_read(_: int) -> int:
        return int(read_array(build(tmp_path / "cache"), "numbers").sum()) + len(read_meta(tmp_path / "cache"))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(build_and_read, range(64))) == {499501}
    assert [path.name for path in tmp_path.iterdir()] == ["cache"]


def test_a_damaged_folder_that_another_process_has_replaced_stays(tmp_path: Path):
    folder = build(tmp_path / "cache")
    before = seal.identity(folder)
    folder.rename(tmp_path / "aside")
    build(folder)
    seal.remove(folder, before)
    assert seal.fault(folder) is None
    seal.remove(folder, seal.identity(folder))
    assert seal.identity(folder) is None


def test_what_was_just_sealed_is_not_summed_again_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    sums, summed = seal._sums, list[Path]()
    monkeypatch.setattr(seal, "_sums", lambda folder, names: summed.append(folder) or sums(folder, names))
    folder = build(tmp_path / "cache")
    summed.clear()
    assert seal.fault(folder) is None and not summed
    path = folder / "part" / "text.txt"
    path.write_text("same sizes")  # as long as what was there
    assert str(path) in str(seal.fault(folder)) and summed == [folder]
