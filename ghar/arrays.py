"""Arrays: named ones in one npz file, written whole or not at all, and rows of length 1."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ghar.disk import whole
from ghar.errors import BadInput


def save_arrays(path: Path, **arrays: np.ndarray) -> None:
    """Write `arrays` so that a reader sees the old file or the new one, never a part."""
    with whole(path) as half, half.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)
        file.flush()
        os.fsync(file.fileno())


def load_arrays(path: Path, names: Sequence[str]) -> dict[str, np.ndarray]:
    """The arrays called `names`. Raises BadInput for a file that is missing, damaged or holds other arrays."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in names}
    except (OSError, ValueError, KeyError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise BadInput(f"{path} cannot be read ({error}): delete it, it is made again.") from error


def unit_rows(vectors: np.ndarray, names: Sequence[str] = ()) -> np.ndarray:
    """float32 [n, d], rows of length 1; a row of zeros stays one (its cosine to anything is 0).

    Raises BadInput for what is no table of numbers, and for a value that is not finite. names: what the rows are of.
    """
    if vectors.ndim != 2 or not vectors.shape[1]:
        raise BadInput(f"Embeddings have shape {vectors.shape} but must be a table [rows, dimensions]: correct it.")
    bad = np.flatnonzero(~np.isfinite(vectors).all(axis=1))
    if len(bad):
        named = f" ({names[bad[0]]!r})" if len(names) else ""
        raise BadInput(
            f"Embedding row {bad[0]}{named}, one of {len(bad)} such rows, holds NaN or infinity: leave out what it is "
            "of, or encode it with an encoder that handles missing values."
        )
    lengths = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    unit = vectors / np.where(lengths > 0, lengths, 1) + 0.0  # no negative zeros, so that equal rows have equal bytes
    return np.ascontiguousarray(unit, dtype=np.float32)
