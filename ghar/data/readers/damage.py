"""What is wrong with a csv file: lines that no reader of rows would miss, and the first cell or line that cannot be."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import polars as pl

from ghar.errors import BadInput

PEEK = 1 << 17  # bytes of a table that are looked at before it is read
QUOTED, CR_ALONE = re.compile(rb'"[^"]*"'), re.compile(rb"\r(?!\n|\Z)")


class LineCount:
    """Counts the lines below the header of a csv while others read it: a stray quote joins lines, silently.

    `wait` gives their number; None for Parquet, and for a file that cannot be unpacked, which its reader says.
    """

    def __init__(self, path: Path):
        self._path, self._lines = path, None
        self._thread = Thread(target=self._count, daemon=True)
        if path.suffix != ".parquet":
            self._thread.start()

    def wait(self) -> int | None:
        if self._thread.ident is not None:
            self._thread.join()
        return self._lines

    def _count(self) -> None:
        try:  # streaming, and three times as fast as the module gzip unpacks
            lines = pl.scan_lines(self._path, glob=False).select(pl.len()).collect(engine="streaming").item()
        except (pl.exceptions.PolarsError, OSError):
            return
        self._lines = max(lines - 1, 0)


def first_bad_line(path: Path) -> tuple[int, str] | None:
    """Line below the header (from 1) of a csv or csv.gz that is no row, and what it is; None where all are.

    Only for files that have been refused already, since it looks at every line.
    """
    columns, tabs = 0, False
    try:
        for number, line in enumerate(_lines(path)):
            tabs = tabs or (number == 0 and b"\t" in line and b"," not in line)
            try:
                text = line.decode("utf-8-sig" if number == 0 else "utf-8")
                cells = text.split("\t") if tabs else next(csv.reader([text]), [])
            except UnicodeDecodeError as error:
                return number, f"has the byte 0x{line[error.start]:02x}, which is not UTF-8"
            except csv.Error as error:
                return number, f"cannot be split into cells ({error})"
            if line.count(b'"') % 2 and not tabs:
                return number, "has a quote that is not closed in its line"
            columns = columns or len(cells)
            if len(cells) > columns:
                return number, f"has {len(cells)} cells, the header {columns}"
    except (OSError, EOFError, zlib.error):
        return None
    return None


def _lines(path: Path) -> Iterator[bytes]:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        yield from file


def check_line_ends(path: Path) -> None:
    """BadInput for lines that end with CR alone, as on old Macs: the whole file would be one header, or one row. A line
    feed somewhere in it changes nothing; a CR between quotes is of a text."""
    begin = first_bytes(path)
    alone = len(CR_ALONE.findall(QUOTED.sub(b"", begin)))
    if alone and alone >= begin.count(b"\n"):
        raise BadInput(
            f"{path} ends its lines with CR alone, as on old Macs, so that it has no row: write LF or CRLF instead."
        )


def first_bytes(path: Path) -> bytes:
    """The first bytes of a csv file, nothing of one that is damaged, which its reader says, and of Parquet."""
    try:
        if path.suffix == ".csv":
            with path.open("rb") as file:
                return file.read(PEEK)
        if path.suffix == ".gz":
            with gzip.open(path) as file:
                return file.read(PEEK)
        if path.suffix == ".zst":
            lines = pl.scan_lines(path, glob=False).head(100).collect().to_series().to_list()
            return "\n".join(line[:PEEK] for line in lines).encode()
    except (OSError, EOFError, zlib.error, pl.exceptions.PolarsError):
        pass
    return b""
