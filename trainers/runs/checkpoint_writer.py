"""Write checkpoints beside the training, from a copy of its state in CPU memory.

Each process writes its files in a thread, which asks no other process. A step is published (manifest, ledger, name) by
the main threads together, at the first `collect` after all have written; until then the run has the step before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Thread
from types import TracebackType

from ghar.trainers.runs import checkpoint
from ghar.trainers.runs.checkpoint import Checkpoint, KeepPolicy, WrittenPart
from ghar.trainers.runs.distributed import gather, world


class CheckpointWriter:
    """Writes one checkpoint at a time into `folder`; all processes make the same calls. model: from `identity`.

    Errors of a write, as `publish` raises them, come at the next call.
    """

    def __init__(self, folder: Path, model: Mapping[str, str], keep: KeepPolicy) -> None:
        self.folder, self.model, self.keep = folder, model, keep
        self._open: _Write | None = None

    def __enter__(self) -> CheckpointWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is None:
            self.finish()
        elif isinstance(error, Exception) and world() == 1 and self._open is not None:
            try:  # the update before the error is whole; other processes may not come here
                self.finish()
            except Exception as other:
                error.add_note(f"The checkpoint before it could not be written either: {other}")

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
            done, self._open = self._open, None
            checkpoint.publish(self.folder, done.step, done.score, done.part(), self.keep)


class _Write:
    """One checkpoint on its way to the disk, in a thread that holds its copies until they are written."""

    def __init__(self, scratch: Path, made: Checkpoint, model: Mapping[str, str]) -> None:
        self.step, self.score = made.step, made.score
        self._found: list[WrittenPart] = []

        def write(made: Checkpoint) -> None:
            self._found.append(checkpoint.write(scratch, made, model))

        # a daemon: whoever stops at once does not wait for it, and its folder has no name yet
        self._thread = Thread(target=write, args=(made,), name=f"checkpoint of update {self.step}", daemon=True)
        self._thread.start()

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    def part(self) -> WrittenPart:
        """What this process has written, once it has."""
        self._thread.join()
        return self._found[0]
