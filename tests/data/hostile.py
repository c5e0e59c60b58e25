"""Hostile variants of small tables and MEDS folders: what may be wrong with a file, put into it by chance, and an
account of what a reader made of it (test_hostile.py).

A variant is one file with one to three faults: cells that mean nothing, rows cut, joined, repeated or moved, quotes
that are not closed, headers of other words or order, other line ends, encodings, separators and packings, files cut
short. A reader may refuse it (BadInput) or read it; then no row may be lost unsaid:

conserved   lines of the file = rows kept + rows dropped by a counted rule + lines joined by quotes, counted;
untouched   every event of rows without a fault is there as it was, but for as many as were joined;
said        a cell that cannot be what its column says (NaN, the year 9999) is refused, or some rule has counted it.
"""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from ghar.errors import BadInput

Events = Counter[tuple[object, ...]]
OWN_WORDS = "EICU_DIAGNOSIS/"
Read = Callable[[], tuple[pl.DataFrame, Mapping[str, int]]]  # a table's events, and its counts
NONSENSE = (  # in no column of numbers or times
    "NaN", "nan", "inf", "-inf", "Infinity", "1e400", "0x10", "1,5", "٣", "½", "--", "NULL",
    "1600-01-01", "1600-01-01 00:00:00", "9999-12-31", "9999-12-31 23:59:59", "2150-02-30", "2150-13-01 00:00:00",
    "02/09/2137", "2150-01-01 25:00:00", "2150-01-01 10:00:60", "10:00", "TRUE", "#REF!", "=1+1", "a\tb", "\x00", "é",
    "2150-01-01 10:00:00+01:00", "+", "e", ".", "__", "N/A",
)  # fmt: skip
ODD = (
    "", " ", "1970", "1e3", "-1e3", "9" * 20, "0", "-1", "1", "2", "3.0", "90", "20", " 90 ", "2150-01-02", "I509",
    "2150-01-02T10:00:00", "2150-01-03", "2150-01-01 10:00:00.000", "i50.9", "x" * 3000, "\u2028", "\ufeff", "a/b",
    "//", "9",
)  # fmt: skip


@dataclass
class Victim:
    """A table that is written, broken and read. typed: columns of numbers and times that the reader takes."""

    name: str
    path: Path
    header: str
    rows: Sequence[str]
    read: Read
    typed: frozenset[str] = frozenset()
    cells: int = 1
    base: Events = field(default_factory=Counter)
    counts: Mapping[str, int] = field(default_factory=dict)
    of_row: list[Events] = field(default_factory=list)

    def learn(self) -> None:
        """What the reader makes of the sound table, and of each row: what is missing without it."""
        self.write(self.rows)
        self.base, self.counts = self.seen()
        for i in range(len(self.rows)):
            self.write([row for j, row in enumerate(self.rows) if j != i])
            self.of_row.append(self.base - self.seen()[0])
        self.write(self.rows)

    def write(self, rows: Sequence[str]) -> None:
        self.path.write_text("\n".join([self.header, *rows]) + "\n")

    def seen(self) -> tuple[Events, Mapping[str, int]]:
        events, counts = self.read()
        return Counter(events.rows()), counts


@dataclass
class Fault:
    """The rows it is in, and whether it is one that has to be said; `whole`: of the file, so that no row is sound."""

    rows: set[int]
    nonsense: bool = False
    whole: bool = False


def attack(victim: Victim, rng: random.Random, *, alone: bool = True) -> str:
    """Break the victim's file, read it, put it right. "refused" or "read"; AssertionError for a row lost unsaid.

    alone: what is read are the events of this table; else the reader itself keeps the account."""
    lines, faults = [victim.header, *victim.rows], []
    for _ in range(rng.choice((1, 1, 2, 3))):
        faults.append(rng.choice(ROW_FAULTS)(victim, lines, rng))
    text, whole = "\n".join(lines) + "\n", False
    content = text.encode("utf-8", "surrogatepass")
    if rng.random() < 0.3:
        content, whole = rng.choice(FILE_FAULTS)(content, rng)
    path, packed = victim.path, rng.random() < 0.1
    if packed:
        path = path.with_name(path.name + ".gz")
        victim.path.unlink()
        content = gzip.compress(content, 1)
        if rng.random() < 0.5:
            content, whole = content[: rng.randrange(len(content))], True
    path.write_bytes(content)
    try:
        events, counts = victim.seen()
    except BadInput as error:
        assert len(str(error)) > 20 and "Traceback" not in str(error)
        return "refused"
    finally:
        path.unlink()
        victim.write(victim.rows)
    if not alone:
        return "read"
    if not packed:
        conserved(victim, content, counts, events)
    touched = set().union(*(fault.rows for fault in faults))
    if not (whole or any(fault.whole for fault in faults)):
        untouched(victim, touched, events, counts)
        if len(faults) == 1 and faults[0].nonsense:
            said(victim, touched, events, counts)
    return "read"


def account(counts: Mapping[str, int], name: str, kind: str) -> int:
    return sum(n for rule, n in counts.items() if rule.startswith(f"{kind}.{name}."))


def conserved(victim: Victim, content: bytes, counts: Mapping[str, int], events: Events) -> None:
    rows = counts.get(f"rows.{victim.name}", 0)
    added = account(counts, victim.name, "added")
    assert rows == events.total() - added + account(counts, victim.name, "dropped"), f"{victim.name}: {dict(counts)}"
    lines = content.count(b"\n") + (not content.endswith(b"\n")) - 1
    joined = counts.get(f"joined.{victim.name}.lines", 0)
    assert victim.cells * (lines - joined) == rows, f"{victim.name}: {lines} lines, {rows} rows, {joined} joined"


def untouched(victim: Victim, touched: set[int], events: Events, counts: Mapping[str, int]) -> None:
    sound = victim.base.copy()
    for i in touched:
        sound -= victim.of_row[i]
    lost = sum(n for row, n in (sound - events).items() if not has_own_words(victim, row, events))
    allowed = victim.cells * counts.get(f"joined.{victim.name}.lines", 0)
    allowed += max(0, account(counts, victim.name, "dropped") - account(victim.counts, victim.name, "dropped"))
    assert lost <= allowed, f"{victim.name}: {lost} events of sound rows are gone: {sound - events}"


def has_own_words(victim: Victim, row: tuple[object, ...], events: Events) -> bool:
    """Whether a diagnosis of eICU stands, at its minute, in words of the sound table in place of a code, whose name
    other rows decide."""
    paths = [
        str(other[2]).removeprefix(OWN_WORDS)
        for other in events
        if other[:2] == row[:2] and other[3:] == row[3:] and str(other[2]).startswith(OWN_WORDS)
    ]
    return str(row[2]).startswith("ICD") and any(path in line for path in paths for line in victim.rows)


def said(victim: Victim, touched: set[int], events: Events, counts: Mapping[str, int]) -> None:
    changed = any((victim.of_row[i] - events).total() for i in touched)
    rules = {rule: n for rule, n in counts.items() if not rule.startswith("rows.")}
    usual = {rule: n for rule, n in victim.counts.items() if not rule.startswith("rows.")}
    assert not changed or rules != usual, f"{victim.name}: a cell without meaning has changed events, uncounted"


def _row(victim: Victim, lines: list[str], rng: random.Random) -> int:
    return rng.randrange(1, len(lines)) if len(lines) > 1 else 0


def _where(victim: Victim, lines: list[str], i: int) -> set[int]:
    """Rows of the sound table whose line this is; all, where it is none any more."""
    same = {j for j, row in enumerate(victim.rows) if lines[i] == row}
    return same or set(range(len(victim.rows)))


def _cell(victim: Victim, lines: list[str], rng: random.Random) -> Fault:
    i = _row(victim, lines, rng)
    where, cells = _where(victim, lines, i), lines[i].split(",")
    place = rng.randrange(len(cells))
    columns = lines[0].lower().split(",")
    typed = place < len(columns) and columns[place] in victim.typed and '"' not in lines[i]
    senseless = rng.random() < 0.4
    cells[place] = rng.choice(NONSENSE if senseless else ODD)
    lines[i] = ",".join(cells)
    return Fault(where, nonsense=senseless and typed and "," not in cells[place], whole=i == 0)


def _quote(victim: Victim, lines: list[str], rng: random.Random) -> Fault:
    i = rng.randrange(len(lines))
    where, at = _where(victim, lines, i), rng.randrange(len(lines[i]) + 1)
    lines[i] = lines[i][:at] + rng.choice(('"', '""', "'", '"\n"', "\r", "\\", '"x"')) + lines[i][at:]
    return Fault(where, whole=i == 0)


def _line(victim: Victim, lines: list[str], rng: random.Random) -> Fault:
    i = _row(victim, lines, rng)
    where, line = _where(victim, lines, i), lines[i]
    if i == 0:
        return Fault(where, whole=True)
    done = rng.choice(("repeat", "delete", "short", "long", "blank", "move", "header", "commas"))
    if done == "repeat":
        lines.insert(i, line)
    elif done == "delete":
        del lines[i]
    elif done == "move":
        lines.insert(_row(victim, lines, rng), lines.pop(i))
        return Fault(set(), whole=True)
    elif done in ("blank", "header", "commas"):
        lines.insert(i, {"blank": "", "header": lines[0], "commas": "," * line.count(",")}[done])
    else:
        lines[i] = line.rpartition(",")[0] if done == "short" else line + ",x"
    return Fault(where)


def _header(victim: Victim, lines: list[str], rng: random.Random) -> Fault:
    names = lines[0].split(",")
    i = rng.randrange(len(names))
    done = rng.choice(("case", "blank", "rename", "twice", "gone", "shuffle", "none"))
    if done == "gone":
        del names[i]
    elif done == "shuffle":
        rng.shuffle(names)
    elif done == "none":
        lines.pop(0) if len(lines) > 1 else None
        return Fault(set(), whole=True)
    else:
        name = names[i]
        names[i] = {"case": name.upper(), "blank": f" {name}", "rename": name + "_2", "twice": names[0]}[done]
    lines[0] = ",".join(names)
    return Fault(set(), whole=done not in ("case", "blank"))


ROW_FAULTS = (_cell, _cell, _cell, _cell, _quote, _quote, _line, _line, _header)


def _bytes(content: bytes, rng: random.Random) -> tuple[bytes, bool]:
    at = rng.randrange(len(content))
    return content[:at] + bytes([rng.randrange(256)]) + content[at + 1 :], True


def _cut(content: bytes, rng: random.Random) -> tuple[bytes, bool]:
    return content[: rng.randrange(len(content))], True


FILE_FAULTS: tuple[Callable[[bytes, random.Random], tuple[bytes, bool]], ...] = (
    _bytes,
    _cut,
    lambda content, _: (b"\xef\xbb\xbf" + content, False),
    lambda content, _: (content.replace(b"\n", b"\r\n"), False),
    lambda content, _: (content.rstrip(b"\n"), False),
    lambda content, _: (content.replace(b"\n", b"\r"), True),
    lambda content, rng: (content.replace(b",", rng.choice((b";", b"\t", b"|", b", "))), True),
    lambda content, _: (content.decode("utf-8", "replace").encode("utf-16"), True),
    lambda content, _: (content + content.partition(b"\n")[2], True),
    lambda content, _: (b"", True),
    lambda content, _: (content.partition(b"\n")[0], True),
)
