"""The ledger of a run folder: what was written there, in one file that only grows, each line with a chained sum.

<run>/ledger.jsonl has one object a line. "what" is
    file      "name" below the run folder, "size" in bytes and "sha256" of it as it is about to be written
    removed   "name" of a file that is about to be removed
    step      "step" of a checkpoint that is about to be published, its "score" (or null), "sha256" of its manifest
    dropped   "steps" that a resumed run does not go on from
    data      "samples" that the run is of (ghar.trainers.runs.samples.data_print)
    schedule  "sha256" of the shares that a module of the user's own gives the updates (ghar.trainers.rl.schedule)
and "sum" is the sha256 of the sum before it and the line without it, so that no line can be changed, left out or put
elsewhere. A line stands here before what it tells of is done. A process that is killed in between leaves the state
before: while the newest line of all is a file's, the file may still be as its line before says. `settle` ends that.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ghar.errors import BadInput

LEDGER = "ledger.jsonl"
FILES = ("config.yaml", "metrics.jsonl", "summary.json", "groups.json", "episodes/*.jsonl", "episodes/training/*.jsonl",
         "predictions/*.parquet")  # fmt: skip
TRIES, PAUSE = 3, 0.1  # of a reader beside a writer; seconds
Row = dict[str, Any]

Looks = tuple[int, int, int]  # of a file: size, inode, time of its last change
_ends: dict[Path, tuple[Looks, str]] = {}  # ledger -> its last sum, as this process left it
_warned: set[Path] = set()


def read(folder: Path) -> list[Row] | None:
    """The lines of a run folder's ledger, None where it has none. BadInput for one that is damaged.

    A last line that a killed writer left without its end is left out.
    """
    try:
        lines = (folder / LEDGER).read_bytes().split(b"\n")[:-1]
    except FileNotFoundError:
        return None
    rows, before = [], ""
    for number, line in enumerate(lines, start=1):
        row = _row(line, before)
        if row is None:
            raise BadInput(
                f"{folder / LEDGER}, line {number} is damaged, so nothing vouches for the numbers of this run: take "
                "the folder from a backup, or run again in another run_dir."
            )
        rows.append(row)
        before = row["sum"]
    return rows


def append(folder: Path, *rows: Mapping[str, Any]) -> None:
    """Add lines; they are on disk when this returns. A folder without a ledger begins one with what lies in it."""
    path = folder / LEDGER
    if not path.exists():
        rows = (*_lying_there(folder), *rows)
    folder.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as file:
        size, before = _end(folder)
        file.truncate(size)
        for row in rows:
            before = _sum(before, row)
            line = json.dumps({**row, "sum": before}).encode() + b"\n"
            file.write(line)
            size += len(line)
        file.flush()
        os.fsync(file.fileno())
    _ends[path] = (looks(path), before)


def looks(path: Path) -> Looks:
    """What tells a file from one that was written in its place."""
    about = path.stat()
    return about.st_size, about.st_ino, about.st_mtime_ns


def entry(name: str, path: Path) -> Row:
    """The line of a file `name` whose content is that of `path`."""
    with path.open("rb") as file:
        return {"what": "file", "name": name, "size": path.stat().st_size, "sha256": sha256(file)}


def sha256(file: Any) -> str:
    return hashlib.file_digest(file, "sha256").hexdigest()


def check(folder: Path, name: str) -> None:
    """BadInput for a file of a run folder that is not as the ledger says. Nothing for a file that is not there.

    A folder of an earlier version has no ledger: a sentence on stderr says that nothing vouches for it.
    """
    for attempt in range(TRIES):
        if attempt:
            time.sleep(PAUSE)  # a writer may have been between two lines
        rows = read(folder)
        if rows is None:
            _warn(folder)
            return
        if not (folder / name).is_file() or _matches_ledger(folder, name, rows):
            return
    is_listed = any(row.get("name") == name for row in rows or ())
    why = f"is damaged ({LEDGER} has another sum" if is_listed else f"was written by no run ({LEDGER} does not name it"
    raise BadInput(f"{folder / name} {why}): take it from a backup, or run or evaluate again in another run_dir.")


def settle(folder: Path) -> None:
    """What a killed writer has told of and not done is taken back, before others write on. BadInput as `check`."""
    rows = read(folder)
    last = rows[-1] if rows else {}
    if last.get("what") == "step" and not (folder / "checkpoints" / f"step-{last['step']}").is_dir():
        append(folder, {"what": "dropped", "steps": [last["step"]]})
    if last.get("what") not in ("file", "removed"):
        return
    path = folder / last["name"]
    check(folder, last["name"])
    if path.is_file():
        append(folder, entry(last["name"], path))
    elif last["what"] == "file":
        append(folder, {"what": "removed", "name": last["name"]})


def _matches_ledger(folder: Path, name: str, rows: list[Row]) -> bool:
    """Whether a file is as its newest line says; as the one before, too, where the newest is the ledger's last."""
    own = [row for row in rows if row["what"] in ("file", "removed") and row["name"] == name][-2:]
    if not own:
        return False
    actual = entry(name, folder / name)
    if own[-1] is not rows[-1]:
        own = own[-1:]
    if any((row.get("size"), row.get("sha256")) == (actual["size"], actual["sha256"]) for row in own):
        return True
    # killed while a line was added: all rows before it are whole
    torn = name.endswith(".jsonl") and len(own) == 2 and actual["size"] < own[-1].get("size", 0)
    return torn and _without_torn_line(folder / name) == (own[0].get("size"), own[0].get("sha256"))


def _without_torn_line(path: Path) -> tuple[int, str]:
    data = path.read_bytes()
    whole = data[: data.rfind(b"\n") + 1]
    return len(whole), hashlib.sha256(whole).hexdigest()


def _lying_there(folder: Path) -> list[Row]:
    """Lines for the files of a folder that an earlier version wrote, as they are now."""
    paths = [path for pattern in FILES for path in sorted(folder.glob(pattern)) if path.is_file()]
    return [entry(str(path.relative_to(folder)), path) for path in paths]


def _end(folder: Path) -> tuple[int, str]:
    """Where the next line goes, and the sum before it."""
    end = _ends.get(folder / LEDGER)
    if end is not None and end[0] == looks(folder / LEDGER):
        return end[0][0], end[1]
    rows = read(folder) or []
    whole = (folder / LEDGER).read_bytes().rfind(b"\n") + 1
    return whole, rows[-1]["sum"] if rows else ""


def _row(line: bytes, before: str) -> Row | None:
    try:
        row = json.loads(line)
        return row if row["what"] and row["sum"] == _sum(before, row) else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _sum(before: str, row: Mapping[str, Any]) -> str:
    own = {name: value for name, value in row.items() if name != "sum"}
    return hashlib.sha256(f"{before}\n{json.dumps(own, sort_keys=True)}".encode()).hexdigest()


def _warn(folder: Path) -> None:
    path = folder.resolve()
    if path not in _warned and any(True for pattern in FILES for _ in folder.glob(pattern)):
        _warned.add(path)
        print(f"{folder} has no {LEDGER}: an earlier version wrote it, and nothing vouches for its numbers.",
              file=sys.stderr)  # fmt: skip
