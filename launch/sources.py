"""Data as an object: `ghar.open("mimic4", "/path").task("los")`, with the defaults of conf/."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ghar.data.cohort import Cohort
    from ghar.data.tasks.visits import TaskSamples
    from ghar.envs.records import Records


@dataclass(frozen=True, eq=False)
class DataSource:
    """Tables of patients. overrides: as on a command line ("data.codes=/path", "protocol=ghar")."""

    overrides: tuple[str, ...]

    @cached_property
    def cohort(self) -> Cohort:
        """Events, codes and visits, as `ghar.data.cohort` says. BadInput for what cannot be read."""
        return self._records().cohort

    def task(self, name: str, *overrides: str) -> TaskSamples:
        """A task's samples: `.task` (question, labels), `.samples`, `.splits` (train, valid, test, by patient) and
        `.counts`. overrides: further keys, such as "task.window_days=30". BadInput for a task that is not there."""
        return self._records(f"task={name}", *overrides).samples

    def _records(self, *more: str) -> Records:
        from ghar.envs.records import Records
        from ghar.launch.entry import load

        return Records(load([*self.overrides, *more]))


def open_source(source: str, root: str | Path | None = None, *overrides: str) -> DataSource:
    """The source data=NAME ("mimic4", "mimic3", "eicu", "meds", "demo") at a folder; None makes generated patients.

    BadInput for a source or a key that does not exist; tables are read when something is asked of them.
    """
    from ghar.launch.entry import load

    named = (f"data={source}", *(() if root is None else (f"data.root={quoted(str(root))}",)), *overrides)
    load(named)  # a wrong name is reported here, not later
    return DataSource(named)


def quoted(text: str) -> str:
    """A value as Hydra's command line takes it, whatever characters it has."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
