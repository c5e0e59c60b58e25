"""Named arrays in one npz file, written whole or not at all."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ghar.errors import BadInput


def save_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write `arrays` so that a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def load_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays called `names`. Raises BadInput for a file that is missing, damaged or holds other arrays."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise BadInput(f"{path} cannot be read ({error}): delete it, it is made again.") from error
