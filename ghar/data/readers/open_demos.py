"""The published open demos, by what is in them. Only hashes stand in open_demos.json, no data.

A table is known by the sha256 of its file as PhysioNet lists it (SHA256SUMS.txt of each demo) or of its CSV text,
unpacked; so a table may be packed another way, but not changed. MIMIC-III's chartevents and labevents have a second
sum each, of copies whose cells have no blanks at their ends, and eICU's lab one of the rows of 174 stays that PyHealth
tests with. Patients (in eICU ICU stays) are known by the sha256 of their ids, ascending, one a line.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from ghar.data.readers.tables import find_table, open_table
from ghar.errors import BadInput

LARGEST = 1 << 28  # bytes of a file of a demo, at most: what is larger need not be read to know
CHUNK = 1 << 20


@dataclass(frozen=True)
class Demo:
    """title; the table and column of its ids, and their sum; sums that each table may have."""

    title: str
    table: str
    column: str
    ids: str
    sums: Mapping[str, Sequence[str]]


_PUBLISHED = json.loads(Path(__file__).with_suffix(".json").read_text())
DEMOS = {name: Demo(**about) for name, about in _PUBLISHED["demos"].items()}
OPEN_FILES: list[str] = _PUBLISHED["files"]


def is_open_demo(source: str, root: Path, tables: Iterable[str]) -> bool:
    """Whether the `tables` of folder `root`, as far as they are there, are those of the open demo of `source`."""
    demo = DEMOS[source]
    try:
        rows = open_table(root, demo.table, {demo.column: pl.Int64()}).rows
        ids = "\n".join(str(number) for number in sorted(rows.collect()[demo.column].drop_nulls()))
    except (BadInput, pl.exceptions.PolarsError, OSError):
        return False  # the reader says what is wrong
    if hashlib.sha256(ids.encode()).hexdigest() != demo.ids:
        return False
    paths = [(name, find_table(root, name)) for name in tables]
    return all(path is None or _matches_sum(path, demo.sums.get(name, ())) for name, path in paths)


def is_open_file(path: Path) -> bool:
    """Whether a file, packed or not, is a published one that is about no patient: MedQA's test questions."""
    return path.is_file() and _matches_sum(path, OPEN_FILES)


def _matches_sum(path: Path, sums: Sequence[str]) -> bool:
    """Whether a file, or the text in it, has one of the sums."""
    if path.stat().st_size > LARGEST:
        return False
    whole, text = hashlib.sha256(), hashlib.sha256()
    try:
        with path.open("rb") as file:
            while block := file.read(CHUNK):
                whole.update(block)
        if whole.hexdigest() in sums:
            return True
        if path.suffix != ".gz":
            return False
        with gzip.open(path) as file:
            while block := file.read(CHUNK):
                text.update(block)
    except (OSError, EOFError, zlib.error):
        return False
    return text.hexdigest() in sums
