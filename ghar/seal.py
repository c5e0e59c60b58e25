"""Sealed folders: the sha256 of every file, block by block, is kept beside them and asked before any of them is used.

A folder that is memory-mapped is read once for that, all blocks in parallel. What was found whole is not read again by
the same process until a file's size, inode or time changes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

SEAL = "sealed.json"
BLOCK = 4 << 20  # bytes of a file that have a sum of their own; of a shorter one it is the file's
THREADS = 8  # hashing lets go of the interpreter's lock

_whole: dict[str, tuple[Any, ...]] = {}  # folder -> what its files looked like when they were last found whole


def seal(
    folder: Path, about: Mapping[str, Any] | None = None, signed: Callable[[Mapping[str, Any]], str] | None = None
) -> None:
    """Write the sums of all files below a finished folder. about: kept with them; signed: makes a signature of both."""
    names = sorted(files_below(folder))
    content: dict[str, Any] = {"files": dict(zip(names, _sums(folder, names), strict=True)), "about": dict(about or {})}
    if signed is not None:
        content["about"]["signature"] = signed(content)
    target, scratch = folder / SEAL, folder / f".{SEAL}"
    scratch.write_text(json.dumps(content | {"sum": _sum_of(content)}, indent=1) + "\n")
    os.replace(scratch, target)  # a new file: the old one may have other names (hard links)


def read_seal(folder: Path) -> dict[str, Any] | None:
    """The seal of a folder; None where it has none, or one that is damaged itself."""
    try:
        content = json.loads((folder / SEAL).read_text())
        own = content.pop("sum")
        good = own == _sum_of(content) and isinstance(content["files"], dict) and isinstance(content["about"], dict)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return content if good else None


def fault(folder: Path) -> str | None:
    """What is wrong with a sealed folder, naming the file (and where in it); None when all is as it was sealed."""
    content = read_seal(folder)
    if content is None:
        return f"{folder / SEAL} is missing or damaged"
    names, wanted = list(content["files"]), list(content["files"].values())
    absent = next((name for name in names if not (folder / name).is_file()), None)
    if absent is not None:
        return f"{folder / absent} is missing"
    try:
        looks = _looks(folder, names)
        if _whole.get(str(folder.resolve())) == looks:
            return None
        for (name, size, *_), before in zip(looks[1:], wanted, strict=True):
            if size != before.get("size"):  # which needs no sum
                return f"{folder / name} is damaged ({_where(before, {'size': size})}: its sha256 is not the seal's)"
        sums = _sums(folder, names)
    except FileNotFoundError as error:  # taken away while it was read
        return f"{error.filename} is missing"
    for name, before, now in zip(names, wanted, sums, strict=True):
        if before != now:
            return f"{folder / name} is damaged ({_where(before, now)}: its sha256 is not the seal's)"
    _whole[str(folder.resolve())] = looks
    for name in names:  # folders that were sealed before they became parts of this one
        inner = folder / Path(name).parent
        if Path(name).name == SEAL and (own := read_seal(inner)) is not None:
            _whole[str(inner.resolve())] = _looks(inner, list(own["files"]))
    return None


def looks_sealed(folder: Path) -> tuple[Any, ...]:
    """What the files of a folder that this process has just sealed look like, for `remember`."""
    return _looks(folder, sorted(files_below(folder)))


def remember(folder: Path, looks: tuple[Any, ...]) -> None:
    """The files of `folder` with these `looks` need not be read again: their sums have just been taken, elsewhere."""
    _whole[str(folder.resolve())] = looks


def sound(folder: Path) -> bool:
    """Whether a cache folder is there and whole. A damaged one is named, on stderr, and removed to be built again."""
    there = identity(folder)
    if there is None:
        return False
    damage = fault(folder)
    if damage is None:
        return True
    print(f"{damage}: {folder.name} is built again.", file=sys.stderr, flush=True)
    remove(folder, there)
    return False


def identity(folder: Path) -> tuple[int, int] | None:
    """Which folder has this name now: another process may put a new one in its place. None where there is none."""
    try:
        stat = folder.stat()
    except FileNotFoundError:
        return None
    return (stat.st_dev, stat.st_ino) if folder.is_dir() else None


def remove(folder: Path, which: tuple[int, int] | None) -> None:
    """Take the folder `which` (`identity`) away under its name at once, so that no one opens a part of it."""
    if which is None or identity(folder) != which:  # another process was faster
        return
    aside = folder.with_name(f".{folder.name}-{os.getpid()}-damaged")
    with suppress(FileNotFoundError):
        os.replace(folder, aside)
    shutil.rmtree(aside, ignore_errors=True)


def files_below(folder: Path) -> Iterator[str]:
    """Names of all files below a folder, links followed, but for its own seal; a folder that is there twice (a link to
    one above itself, say) is a name the second time."""
    seen = set[str]()
    for place, folders, names in os.walk(folder, followlinks=True):
        seen.add(os.path.realpath(place))
        again = [name for name in folders if os.path.realpath(os.path.join(place, name)) in seen]
        folders[:] = [name for name in folders if name not in again]
        for name in [*names, *again]:
            path = Path(place, name).relative_to(folder)
            if str(path) not in (SEAL, f".{SEAL}"):
                yield str(path)


def _sums(folder: Path, names: list[str]) -> list[dict[str, Any]]:
    """Size and sums of the blocks of each file."""
    sizes = [(folder / name).stat().st_size for name in names]
    parts = [(i, at) for i, size in enumerate(sizes) for at in range(0, max(size, 1), BLOCK)]
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        blocks = list(pool.map(lambda part: _block(folder / names[part[0]], part[1]), parts))
    sums: list[dict[str, Any]] = [{"size": size, "sha256": []} for size in sizes]
    for (i, _), block in zip(parts, blocks, strict=True):
        sums[i]["sha256"].append(block)
    return sums


def _block(path: Path, at: int) -> str:
    with path.open("rb", buffering=0) as file:
        file.seek(at)
        return hashlib.sha256(file.read(BLOCK)).hexdigest()


def _where(before: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if before.get("size") != now["size"]:
        return f"{now['size']:,} bytes in place of {before.get('size')}"
    wrong = [i for i, (a, b) in enumerate(zip(before.get("sha256", ()), now["sha256"], strict=False)) if a != b]
    return f"in its {BLOCK >> 20} MiB block {wrong[0] + 1} of {len(now['sha256'])}" if wrong else "in its seal"


def _looks(folder: Path, names: list[str]) -> tuple[Any, ...]:
    stats = [(name, (folder / name).stat()) for name in (SEAL, *names)]
    return tuple((name, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino) for name, s in stats)


def _sum_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
