"""Folders of memory-mapped arrays: written whole or not at all, sealed (ghar/seal.py), and opened where they are."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from ghar import seal
from ghar.disk import make_folder
from ghar.errors import BadInput
from ghar.lock import lock
from ghar.provenance import Provenance, sign, signed_mark

if TYPE_CHECKING:  # folders without arrays do without it: it takes longer to import than a small cohort to open
    import numpy as np

WRITER = ".writer"  # in a half folder: locked by the process that writes it
YOUNG = 60.0  # seconds after which that file has been locked


class TextList(Sequence[str]):
    """Texts that are made or read when they are asked for, one by one."""

    @abstractmethod
    def text(self, index: int) -> str:
        """Text `index`, counted from 0."""

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        position = range(len(self))[index]  # IndexError beyond the last one
        return self.text(position) if isinstance(position, int) else [self.text(one) for one in position]


@dataclass(frozen=True, eq=False)
class Strings(TextList):
    """An immutable list of strings as two arrays: string i is `data[offsets[i]:offsets[i + 1]]` in UTF-8."""

    data: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, values: Sequence[str]) -> Strings:
        import numpy as np

        encoded = [value.encode() for value in values]
        offsets = np.zeros(len(encoded) + 1, dtype=np.int64)
        np.cumsum([len(value) for value in encoded], out=offsets[1:])
        return cls(np.frombuffer(b"".join(encoded), dtype=np.uint8), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def text(self, index: int) -> str:
        return self.data[self.offsets[index] : self.offsets[index + 1]].tobytes().decode()

    def find(self, value: str) -> int | None:
        """Position of `value`, or None, in a list that is sorted (UTF-8 sorts as the strings do)."""
        key, low, high = value.encode(), 0, len(self)
        while low < high:
            middle = (low + high) // 2
            here = self.data[self.offsets[middle] : self.offsets[middle + 1]].tobytes()
            if here == key:
                return middle
            low, high = (middle + 1, high) if here < key else (low, middle)
        return None


@contextmanager
def new_folder(target: Path, mark: Provenance | None = None, *, keep: bool = False) -> Iterator[Path]:
    """Yield a temporary folder that is sealed and becomes `target` when the block ends, and vanishes when it fails.

    mark: what the seal is signed for (ghar/provenance.py). An existing `target` is replaced where it is another one, or
    with `keep` (its name says what it holds) where it is damaged. Two processes may do this at once: what the first has
    finished is not taken away from who reads it already. What killed writers have left beside `target` is removed.
    """
    make_folder(target.parent, mode=0o700)
    sweep(target.parent)
    temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}-", dir=target.parent))
    try:
        with (temporary / WRITER).open("w") as writer:
            lock(writer, target.parent, wait=True)  # the system lets go of it when the process ends, however it ends
            yield temporary
            (temporary / WRITER).unlink()
            seal.seal(temporary) if mark is None else sign(temporary, mark)
            _move(temporary, target, mark, keep)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def sweep(place: Path) -> None:
    """Remove the half folders in `place` whose writers are gone."""
    for writer in place.glob(f".*/{WRITER}"):
        with suppress(OSError), writer.open() as file:  # OSError: it is at work, or has just finished
            if time.time() - writer.stat().st_mtime > YOUNG:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(writer.parent, ignore_errors=True)


def _move(temporary: Path, target: Path, mark: Provenance | None, keep: bool) -> None:
    looks = seal.looks_sealed(temporary)
    while True:
        try:
            os.replace(temporary, target)
            return seal.remember(target, looks)  # under its new name they are what was just summed
        except OSError:
            # A folder can only be replaced when it is empty, so the old one steps aside first.
            if not target.is_dir():
                raise
            there = seal.identity(target)
            same = seal.read_seal(target) == seal.read_seal(temporary)
            if (keep or same) and seal.fault(target) is None and mark in (None, signed_mark(target)):
                return
            seal.remove(target, there)


def write_arrays(folder: Path, arrays: Mapping[str, np.ndarray | Strings]) -> None:
    """Write every array as `<name>.npy` (strings as two files) into an existing folder."""
    import numpy as np

    for name, array in arrays.items():
        if isinstance(array, Strings):
            np.save(folder / f"{name}.data.npy", array.data)
            np.save(folder / f"{name}.offsets.npy", array.offsets)
        else:
            np.save(folder / f"{name}.npy", array)


def write_meta(folder: Path, meta: Mapping[str, Any]) -> None:
    """Write meta.json into an existing folder."""
    (folder / "meta.json").write_text(json.dumps(meta, indent=1))


def read_meta(folder: Path) -> dict[str, Any]:
    """Read meta.json of a sealed folder; `BadInput` when it, or any other file there, is missing or damaged."""
    path = folder / "meta.json"
    if damage := seal.fault(folder):
        raise BadInput(f"{damage}; delete the folder and build it again.")
    try:
        meta = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise BadInput(f"{path} cannot be read ({error}); delete the folder and build it again.") from None
    return meta


def read_array(folder: Path, name: str) -> np.ndarray:
    """Open `<name>.npy` memory-mapped; `BadInput` when it is missing or damaged."""
    import numpy as np

    path = folder / f"{name}.npy"
    try:
        array = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise BadInput(f"{path} cannot be read ({error}); delete {folder} and build it again.") from None
    return array.view(np.ndarray)


def read_strings(folder: Path, name: str) -> Strings:
    """Open strings written by `write_arrays`."""
    return Strings(read_array(folder, f"{name}.data"), read_array(folder, f"{name}.offsets"))
