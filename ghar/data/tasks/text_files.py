"""Files of questions and of clinical texts: how they are opened, and which part of a set each file of a folder is."""

from __future__ import annotations

import csv
import gzip
import io
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from ghar.data.cohort import Task
from ghar.data.tasks.splits import S, Splits
from ghar.errors import BadInput

PARTS = {"train": ("train",), "valid": ("valid", "dev"), "test": ("test",)}  # part -> words of which a name has one

ABOUT = "metadata"  # in the names of files about texts, such as ACI-BENCH's train_metadata.csv

T = TypeVar("T")


@dataclass(frozen=True)
class TextSet(Generic[S]):
    """All samples of a file or a folder of texts, by split."""

    task: Task
    splits: Splits[S]


def text_of(path: Path, wanted: str) -> str:
    """What a file holds, plain or gzipped, in UTF-8. wanted: the files that could be read. BadInput where it cannot."""
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", encoding="utf-8-sig", newline="") as file:  # a mark at its begin is no text
            return file.read()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read ({error}): give {wanted}.") from error


def words_of(text: str) -> tuple[str, ...]:
    """What two copies of one text share, however they are spaced and capitalised."""
    return tuple(text.casefold().split())


def cells_of(path: Path, wanted: str) -> list[list[str]]:
    """The rows of a csv file, as `text_of` opens it; empty ones have no cells."""
    csv.field_size_limit(sys.maxsize)  # a note is longer than csv's default
    try:
        return list(csv.reader(io.StringIO(text_of(path, wanted), newline="")))
    except csv.Error as error:
        raise BadInput(f"{path} cannot be read ({error}): give {wanted}.") from error


def parts_of(folder: Path, suffixes: tuple[str, ...], read: Callable[[Path], Sequence[T]]) -> dict[str, list[T]]:
    """The official parts of a set, "train", "valid" and "test", as `read` reads each file; of several of a part all.

    BadInput where a part has no file, and for a name that speaks of two parts.
    """
    named = [path for path in sorted(folder.iterdir()) if path.name.lower().endswith(suffixes)]
    files = [path for path in named if ABOUT not in path.name.lower()]
    by_part: dict[str, list[Path]] = {part: [] for part in PARTS}
    for path in files:
        parts = [part for part, words in PARTS.items() if any(word in path.name.lower() for word in words)]
        if len(parts) > 1:
            raise BadInput(f"{path} could be of {' or '.join(parts)}: name it after one of them.")
        for part in parts:
            by_part[part].append(path)
    for part, paths in by_part.items():
        names = [path.name.partition(".")[0] for path in paths]
        if twice := {name for name in names if names.count(name) > 1}:
            raise BadInput(f"{folder} has {', '.join(sorted(twice))} in several files, packed or not: keep one.")
        if not paths:
            seen = ", ".join(path.name for path in files) or f"no {' or '.join(suffixes)} file"
            alone = f" To get one file split, name it: data.root={files[0]}." if len(files) == 1 else ""
            raise BadInput(f"{folder} needs a file with {' or '.join(PARTS[part])} in its name: it has {seen}.{alone}")
    return {part: [row for path in paths for row in read(path)] for part, paths in by_part.items()}
