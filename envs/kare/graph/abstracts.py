"""Abstracts of biomedical papers (PubMed's, say) in a folder of JSONL or CSV files, as memory-mapped texts."""

from __future__ import annotations

import csv
import gzip
import json
from array import array
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np

from ghar.data.readers.tables import fingerprint
from ghar.errors import BadInput
from ghar.progress import track
from ghar.provenance import signed_mark
from ghar.sanitize import readable
from ghar.seal import SEAL, sound
from ghar.storage import Strings, new_folder, read_meta, read_strings, write_arrays, write_meta

VERSION = "abstracts-1"  # part of the cache key: raise it when a rule changes
SUFFIXES = (".jsonl", ".jsonl.gz", ".csv", ".csv.gz")
FIELD = 10_000_000  # characters of a cell of a CSV file


@dataclass(frozen=True, eq=False)
class Abstracts:
    """ids: of the papers; texts: title and abstract as one text, both in the files' order. counts: rows, and those left
    out by rule. fingerprint: changes with the files. generated: whether the demo world wrote them."""

    ids: Strings
    texts: Strings
    counts: Mapping[str, int]
    fingerprint: str
    generated: bool

    def __len__(self) -> int:
        return len(self.ids)


def read_abstracts(folder: Path, cache: Path) -> Abstracts:
    """Read all *.jsonl, *.csv (or .gz) of `folder`, by name, or their copy under `cache`.

    A row has id or pmid, title and abstract. Rows without an abstract and ids that were there before are left out,
    counted. BadInput names the file and line of a row that is none, and a folder without any abstract.
    """
    folder = Path(folder)
    paths = sorted(path for path in folder.glob("*") if path.name.lower().endswith(SUFFIXES))
    if not paths:
        raise BadInput(f"{folder} holds no abstracts: give a folder of {', '.join(SUFFIXES)} files.")
    key = fingerprint([*paths, *([folder / SEAL] if (folder / SEAL).exists() else [])], VERSION)
    target = Path(cache) / f"abstracts-{key}"
    if not sound(target):
        _store(paths, signed_mark(folder).generated, target)
    about = read_meta(target)
    ids, texts = read_strings(target, "ids"), read_strings(target, "texts")
    return Abstracts(ids, texts, about["counts"], key, about["generated"])


def _store(paths: list[Path], generated: bool, target: Path) -> None:
    """Texts go to disk as they are read; ids and lengths are held (3 million abstracts: 0.5 GB)."""
    counts: Counter[str] = Counter()
    ids: dict[str, None] = {}
    lengths = array("q")
    with new_folder(target, keep=True) as half:
        with (half / "raw").open("wb") as raw:
            for ident, text in track(_rows(paths), "Read abstracts"):
                counts["rows"] += 1
                if not text:
                    counts["without_abstract"] += 1
                elif ident in ids:
                    counts["repeated"] += 1
                else:
                    ids[ident] = None
                    lengths.append(raw.write(text.encode()))
        if not ids:
            raise BadInput(f"{paths[0].parent}: none of its {counts['rows']} rows has an abstract; give other files.")
        offsets = np.concatenate([[0], np.cumsum(np.frombuffer(lengths, np.int64))])
        texts = Strings(np.memmap(half / "raw", np.uint8, "r"), offsets)
        write_arrays(half, {"ids": Strings.of(list(ids)), "texts": texts})
        (half / "raw").unlink()
        write_meta(half, {"counts": dict(counts), "generated": generated})


def _rows(paths: list[Path]) -> Iterator[tuple[str, str]]:
    """(id, text) of every row; the text is "" without an abstract."""
    for path in paths:
        table = path.name.lower().removesuffix(".gz").endswith(".csv")
        try:
            with _opened(path) as file:
                yield from _of_csv(file, path) if table else _of_jsonl(file, path)
        except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
            raise BadInput(f"{path} cannot be read ({error}): copy the file again.") from error


def _opened(path: Path) -> TextIO:
    if path.suffix.lower() == ".gz":
        return cast(TextIO, gzip.open(path, "rt", encoding="utf-8", newline=""))
    return path.open(encoding="utf-8", newline="")


def _of_jsonl(file: TextIO, path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(file, 1):
        if line.strip():
            try:
                row = json.loads(line)
            except ValueError as error:
                raise BadInput(f"{path}, line {number} is no JSON ({error}): mend or delete it.") from error
            yield _row(row, path, number)


def _of_csv(file: TextIO, path: Path) -> Iterator[tuple[str, str]]:
    csv.field_size_limit(FIELD)
    rows = csv.DictReader(file)
    for row in rows:
        if None in row:
            raise BadInput(f"{path}, line {rows.line_num} has more cells than the header: quote the text's commas.")
        yield _row(row, path, rows.line_num)


def _row(row: Any, path: Path, number: int) -> tuple[str, str]:
    values = {str(name).strip().lower(): value for name, value in row.items()} if isinstance(row, dict) else {}
    ident = values.get("id", values.get("pmid"))
    if ident in (None, "") or "abstract" not in values:
        raise BadInput(f"{path}, line {number} has no id (or pmid) or no abstract: a row has id, title and abstract.")
    title, abstract = (" ".join(readable(str(values.get(name) or "")).split()) for name in ("title", "abstract"))
    ident = readable(str(ident))
    if not abstract:
        return ident, ""
    return ident, f"{title}{'' if title.endswith(('.', '?', '!')) else '.'} {abstract}" if title else abstract
