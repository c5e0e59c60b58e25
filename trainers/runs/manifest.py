"""The manifest of a folder of weights: sha256 of every file in it, by which a damaged one is named before it loads."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from ghar.llm.adapter import base_of, combined

MANIFEST = "manifest.json"
PIECE = 1 << 18  # bytes read at once


def seal(folder: Path) -> None:
    """Write the manifest of a finished folder: sha256 of every file below it; all is on disk when this returns."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != MANIFEST)
    write_sums(folder, {str(path.relative_to(folder)): written_sum(path) for path in files})


def go_on() -> None:
    """Let whoever writes or reads a file go on."""


def written_sum(path: Path, check: Callable[[], None] = go_on) -> str:
    """sha256 of a finished file, which is on disk when this returns. check: asked before every piece; it may raise."""
    digest = _file_digest(path, check)
    sync(path)
    return digest


def write_sums(folder: Path, sums: Mapping[str, str]) -> None:
    """Write the manifest of a folder from the sums of its files, which are on disk (`written_sum`)."""
    scratch = folder / f".{MANIFEST}"
    scratch.write_text(json.dumps(dict(sorted(sums.items())), indent=1) + "\n")
    sync(scratch)
    os.replace(scratch, folder / MANIFEST)
    sync(folder)


def sums(folder: Path) -> dict[str, str]:
    """sha256 of every file of a sealed folder, by its path in it."""
    return json.loads((folder / MANIFEST).read_text())


def weights_sum(folder: Path) -> str:
    """sha256 over the names and sums of the weights in a sealed model folder, and those of an adapter's base: the same
    wherever it is moved."""
    digests = {name: digest for name, digest in sums(folder).items() if name.endswith((".safetensors", ".bin"))}
    return combined(digests, base_of(folder))


def fault(folder: Path) -> str | None:
    """What is wrong with a sealed folder, naming the file; None when every file is what the manifest says."""
    try:
        sums = json.loads((folder / MANIFEST).read_text())
    except (OSError, ValueError):
        return f"{folder / MANIFEST} is missing or unreadable, so {folder} is no checkpoint"
    for name, digest in sums.items():
        if not (folder / name).is_file():
            return f"{folder / name} is missing"
        if _file_digest(folder / name) != digest:
            return f"{folder / name} is damaged (its sha256 is not the manifest's)"
    return None


def sync(path: Path) -> None:
    """Have a file or folder on disk when this returns."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _file_digest(path: Path, check: Callable[[], None] = go_on) -> str:
    digest, piece = hashlib.sha256(), memoryview(bytearray(PIECE))
    with path.open("rb", buffering=0) as file:
        while size := file.readinto(piece):
            check()
            digest.update(piece[:size])
    return digest.hexdigest()
