"""Write checkpoints beside the training, from a copy of its state in CPU memory.

Each process writes its files in a thread, which asks no other process. A step is published (manifest, ledger, name) by
the main threads together, at the first `collect` after all have written; until then the run has the step before.
Whoever leaves earlier has the thread give up and waits for its end: one that is at work while the interpreter ends
would abort the process. A step that all processes had written by then is published by the next start (`adopt`).
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event, Thread
from types import TracebackType

import psutil

from ghar.device import GIB
from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.checkpoint import Checkpoint, KeepPolicy, WrittenPart
from ghar.trainers.runs.distributed import gather, rank, world


class CheckpointWriter:
    """Writes one checkpoint at a time into `folder`; all processes make the same calls.

    model: from `identity`; room: bytes of host memory that must be free before a copy is made.
    Errors of a write, as `publish` raises them, come at the next call.
    """

    def __init__(self, folder: Path, model: Mapping[str, str], keep: KeepPolicy, room: float = 0.0) -> None:
        self.folder, self.model, self.keep, self.room = folder, model, keep, room
        self._open: _Write | None = None
        self._has_warned = False

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if error is None:
                self.finish()
            elif isinstance(error, Exception) and world() == 1:
                try:  # the update before the error is whole; other processes may not come here
                    self.finish()
                except Exception as other:
                    reason = checkpoint.sentence(other)
                    message = f"The checkpoint before it could not be written either: {reason}"
                    print(message, file=sys.stderr, flush=True)
        finally:
            if self._open is not None:
                self._open.give_up()

    def has_room(self) -> bool:
        """Whether every process may `begin`, once what was begun before is published; else it must `save`."""
        self.finish()
        everywhere = gather((self.room, psutil.virtual_memory().available))
        room, free = min(everywhere, key=lambda one: one[1] - one[0])  # of the process that has least to spare
        has_room = room <= free
        if not has_room and not self._has_warned:
            self._has_warned = True
            if rank() == 0:
                print(
                    f"A copy of a checkpoint wants {room / GIB:.1f} GiB of host memory, of which {free / GIB:.1f} "
                    "are free in the process that has least: checkpoints are written before the next update.",
                    flush=True,
                )
        return has_room

    def begin(self, make: Callable[[], Checkpoint]) -> None:
        """Start to write what `make` copies, once what was begun before is published: there is one copy at a time."""
        self.finish()
        made = make()
        self._open = _Write(checkpoint.make_scratch(self.folder, made.step), made, self.model)

    def collect(self) -> None:
        """Publish what was begun, where all processes have written it."""
        if self._open is not None and all(gather(self._open.is_done())):
            self.finish()

    def finish(self) -> None:
        """Wait for what was begun, and publish it."""
        if self._open is not None:
            part = self._open.part()  # a signal may end the wait: it is still open then, and given up
            done, self._open = self._open, None
            checkpoint.publish(self.folder, done.step, done.score, part, self.keep)

    def save(self, make: Callable[[], Checkpoint]) -> None:
        """Write what `make` gives at once, after what was begun: it may share memory with the training."""
        self.finish()
        checkpoint.save(self.folder, make(), self.model, self.keep)


class _Write:
    """One checkpoint on its way to the disk, in a thread that holds its copies until they are written."""

    def __init__(self, scratch: Path, made: Checkpoint, model: Mapping[str, str]) -> None:
        self.step, self.score = made.step, made.score
        self._scratch, self._process = scratch, rank()  # asked here: the group may be gone before the thread is
        self._found: list[WrittenPart] = []
        self._given_up = Event()

        def write(made: Checkpoint) -> None:
            try:
                part = checkpoint.write(scratch, made, model, self._process, self._check)
                if part.error is None:
                    checkpoint.mark_written(scratch.parent, made.step, self._process, part.sums)
                self._found.append(part)
            except BaseException as error:  # whatever it is, the main thread raises it
                wrapped = RuntimeError(f"The checkpoint of update {self.step} could not be written: {error!r}")
                wrapped.__cause__ = error
                self._found.append(WrittenPart({}, wrapped))

        self._thread = Thread(target=write, args=(made,), name=f"checkpoint of update {self.step}")
        self._thread.start()

    def _check(self) -> None:
        if self._given_up.is_set():
            raise RuntimeError(f"The checkpoint of update {self.step} was given up.")

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def part(self) -> WrittenPart:
        """What this process has written, once it has."""
        self._thread.join()
        return self._found[0]

    def give_up(self) -> None:
        """End the writing soon, and wait for that. A part that is written stays for the next start."""
        self._given_up.set()
        self._thread.join()
        if self._process == 0 and self._found[0].error is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)
