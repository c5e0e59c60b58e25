"""A study's folder.

study.yaml              the study and its scale as they were started; another one is refused
plan.json               what was planned: cells, versions, machine
samples/KEY.parquet     samples, splits and groups, once for all cells that share them
cells/ID/               the run folder of a cell (checkpoints, episodes, report), and log.txt of its job
cells/ID/done.json      written last: which predictions the cell left, with their sums; failed.json: why it left none
predictions/ID.ROW.parquet
numbers.json            the tables' numbers; tables/, figures/, report.html are drawn from it
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ghar.disk import make_folder
from ghar.errors import BadInput
from ghar.metrics.runfolder import write_whole
from ghar.trainers.study.numbers import FinishedCell
from ghar.trainers.study.predictions import sha256
from ghar.trainers.study.schema import Cell
from ghar.yaml_text import parse_yaml


@dataclass(frozen=True)
class StudyFolder:
    path: Path

    def run(self, cell: Cell | str) -> Path:
        return self.path / "cells" / (cell if isinstance(cell, str) else cell.id)

    def predictions(self, cell: Cell, row: str) -> Path:
        return self.path / "predictions" / f"{cell.id}.{row}.parquet"

    def samples(self, key: str) -> Path:
        return self.path / "samples" / f"{key}.parquet"

    def open(
        self,
        about: Mapping[str, Any],
        as_today: Callable[[dict[str, Any]], Mapping[str, Any]] = dict,
        grows: Callable[[Mapping[str, Any], Mapping[str, Any]], bool] = lambda kept, now: False,
    ) -> None:
        """Create it, or reopen it for the same study. BadInput for another one: its cells would be mixed.

        as_today: what an older folder's study.yaml says, with the fields that have come since. grows: whether a study
        is the one that is kept and more, whose study.yaml is written anew.
        """
        kept = self.path / "study.yaml"
        there = as_today(parse_yaml(kept.read_text())) if kept.is_file() else None
        if there is not None and not grows(there, about):
            if wrong := [key for key in about if there.get(key) != about[key]]:
                raise BadInput(
                    f"{self.path} holds another study (other {', '.join(wrong)}): choose another folder=, or delete it."
                )
        else:
            make_folder(self.path, mode=0o700)
            write_whole(kept, yaml.safe_dump(dict(about), sort_keys=False, allow_unicode=True))

    def about(self) -> dict[str, Any]:
        kept = self.path / "study.yaml"
        if not kept.is_file():
            raise BadInput(f"{self.path} is no study's folder: it holds no study.yaml.")
        return parse_yaml(kept.read_text())

    def finish(self, cell: Cell, about: Mapping[str, Any]) -> None:
        (self.run(cell) / "failed.json").unlink(missing_ok=True)
        write_whole(self.run(cell) / "done.json", json.dumps(dict(about), indent=1) + "\n")

    def fail(self, cell: Cell, reason: str) -> None:
        write_whole(self.run(cell) / "failed.json", json.dumps({"reason": reason}) + "\n")

    def done(self, cell: Cell | str) -> dict[str, Any] | None:
        """What a finished cell left; None for one that is not finished, or whose files are gone or changed."""
        record = _json(self.run(cell) / "done.json")
        if record is None:
            return None
        for name, sum_ in record["predictions"].items():
            file = self.path / "predictions" / name
            if not file.is_file() or sha256(file) != sum_:
                return None
        return record

    def reason(self, cell: Cell | str) -> str | None:
        failure = _json(self.run(cell) / "failed.json")
        return None if failure is None else str(failure["reason"])

    def played(self, cell: Cell) -> FinishedCell | None:
        record = self.done(cell)
        if record is None:
            return None
        rows = {row: self.path / "predictions" / name for row, name in record["rows"].items()}
        return FinishedCell(cell.id, tuple(record["labels"]), rows, record["holes"], record.get("models", {}))

    def forget(self, cell: Cell) -> None:
        """Remove what a cell has left, so that it is played again from nothing."""
        shutil.rmtree(self.run(cell), ignore_errors=True)


def _json(path: Path) -> dict[str, Any] | None:
    try:
        return json.loads(path.read_text())
    except (OSError, json.JSONDecodeError):
        return None
