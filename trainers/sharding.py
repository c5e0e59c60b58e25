"""Cases in parts, dealt out to all processes, each part's file written whole: what a kill leaves is not played again.

Which cases share a part, and so a batch of the engine, depends on the cases alone: any number of processes, killed and
started again or not, ends with the same bits.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ghar.metrics.runfolder import read_lines, write_lines, write_whole
from ghar.progress import progress
from ghar.trainers.runs.distributed import on_main, rank, world

LEAST, MOST = 64, 32  # cases of a part, so that an engine's batches are filled; parts that would be enough
FILLED = 4  # times that few in flight are filled up within a part: only at its end do batches become small


def parted(cases: Sequence[Any], in_flight: int) -> list[list[Any]]:
    """`cases` in their order, a patient's neighbouring ones together; parts of at most about `in_flight`,
    or of a few times as many up to `LEAST`."""
    size = min(max(in_flight, min(LEAST, FILLED * in_flight)), max(LEAST, -(-len(cases) // MOST)))
    parts: list[list[Any]] = []
    for case in cases:
        if not parts or (len(parts[-1]) >= size and parts[-1][-1].subject_id != case.subject_id):
            parts.append([])
        parts[-1].append(case)
    return parts


def play_parts(
    folder: Path,
    parts: Sequence[Sequence[Any]],
    make: Callable[[Sequence[Any]], Sequence[Any]],
    ready: Callable[[], object] = lambda: None,
    title: str = "",
) -> None:
    """Write folder/NUMBER.jsonl, the JSON objects that `make` gives of each part's cases, where it is not there yet.

    Every process calls it with the same arguments and takes its share of the parts; when it returns all are there, for
    processes that see the same disk. ready: what all processes do together first, where anything is left. title: under
    which `make` shows its progress, and all parts are shown as one step.
    """
    left = on_main(lambda: [i for i in range(len(parts)) if not part_file(folder, i).is_file()])
    if done := len(parts) - len(left):
        on_main(lambda: print(f"{folder.name}: {done} of {len(parts)} parts were finished by an earlier start."))
    if left:
        ready()
    own = left[rank() :: world()]
    cases = sum(len(parts[i]) for i in own)
    with progress(cases, title, "episodes") if title and own else nullcontext():
        for i in own:
            write_lines(part_file(folder, i), make(parts[i]))
    on_main(lambda: None)  # the others are done, too: it waits as long as a phase may take


def part_file(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.jsonl"


def rows_in(folder: Path, parts: Sequence[Sequence[Any]]) -> Iterator[dict[str, Any]]:
    """What `play_parts` wrote, in the order of the cases, one at a time."""
    for i in range(len(parts)):
        yield from read_lines(part_file(folder, i))


def claim(folder: Path, key: str) -> None:
    """Make `folder` one for parts of `key`, which names all that they depend on: parts of another one, or that were cut
    by another rule than `parted`'s, are removed."""
    key = f"{key} {LEAST} {MOST} {FILLED}"

    def clear() -> None:
        mark = folder / "of"
        if not mark.is_file() or mark.read_text() != key:
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True, mode=0o700)  # episodes quote patients
            write_whole(mark, key)

    on_main(clear)
