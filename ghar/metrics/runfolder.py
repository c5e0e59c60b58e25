"""Everything a run makes, under one folder.

config.yaml             the composed configuration
metrics.jsonl           one object a step: "step" (int), "phase" ("base", "sft", "rl") and numbers under train/...,
                        eval/... and time/...; a number that is not finite is written as null
summary.json            the numbers of the run (schema: ghar.metrics.report)
episodes/<name>.jsonl   one evaluated episode a row: policy, split, sample_id, subject_id (int or str: the patient, whom
                        every interval draws whole), patient (text), credentialed (bool), label, prediction (label
                        strings; prediction null when no answer could be read), label_probabilities (in the order of the
                        task's labels, or null), temperature (for those, fitted on validation cases; optional),
                        threshold (of two labels: from which probability of the second to say it, by the F1 of
                        validation cases; optional), correct,
                        needs_retrieval (bool or null), retrieved, iterations, prompt_tokens, completion_tokens,
                        neutralised (places of its prompts that ghar.sanitize changed; optional), seconds, rewards
                        {term: value before its weight}, weighted {term: value that the reward adds up} (optional),
                        reward, failure (null or its name), turns: [{agent, role, step, prompt, reply, format_ok,
                        evidence (text or null)}] and lookups: [{query, found: [{text, kind, score, path (meta-path or
                        null), shown (by any prompt)}]}] (optional)
groups.json             sample_id -> {kind: group}: who the test samples are of (ghar.data.groups); of tasks of visits
checkpoints/            trainers/ owns it
report.html             made from the above by ghar.metrics.report
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghar.disk import whole
from ghar.errors import BadInput

PHASES = ("base", "sft", "rl")


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes one run's files. `RunFolder.open` also repairs what a killed run left behind."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Create the folder or reopen it; a last line of metrics.jsonl that a killed run left partial is cut."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (path / "episodes").mkdir(exist_ok=True, mode=0o700)  # episodes quote patients
        folder = cls(path)
        if folder.metrics_path.exists():
            _cut_partial_line(folder.metrics_path)
        return folder

    @property
    def metrics_path(self) -> Path:
        return self.path / "metrics.jsonl"

    def write_config(self, text: str) -> None:
        """Keep the composed configuration (YAML text)."""
        write_whole(self.path / "config.yaml", text)

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one step to metrics.jsonl; it is on disk when this returns.

        Raises ValueError for a row without step and phase or with a value that is not a number.
        """
        line = json.dumps(_metrics_row(row), allow_nan=False) + "\n"
        with self.metrics_path.open("ab") as file:
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())

    def rewind(self, phase: str, step: int) -> None:
        """Forget the rows after `step` of `phase`, and of later phases: a resumed run writes them again."""
        last = (PHASES.index(phase), step)
        kept = [row for row in self.metrics() if (PHASES.index(row["phase"]), row["step"]) <= last]
        write_whole(self.metrics_path, "".join(json.dumps(row) + "\n" for row in kept))

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of metrics.jsonl, [] when there are none; a partial last line is not a row."""
        return list(read_lines(self.metrics_path)) if self.metrics_path.exists() else []

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        write_whole(self.path / "summary.json", json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n")

    def summary(self) -> dict[str, Any] | None:
        """summary.json, None before the run has written one."""
        return _json(self.path / "summary.json")

    def write_groups(self, groups: Mapping[str, Mapping[str, str]]) -> None:
        """Keep which groups each test sample belongs to."""
        write_whole(self.path / "groups.json", json.dumps(groups))

    def groups(self) -> dict[str, dict[str, str]]:
        """What `write_groups` has kept; nothing of a run that knows none."""
        return _json(self.path / "groups.json") or {}

    def write_episodes(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write episodes/<name>.jsonl, whole or not at all."""
        write_lines(self.path / "episodes" / f"{name}.jsonl", rows)

    def episodes(self, name: str) -> Iterator[dict[str, Any]]:
        """Rows of episodes/<name>.jsonl, one at a time."""
        path = self.path / "episodes" / f"{name}.jsonl"
        if not path.exists():
            raise BadInput(
                f"{path} does not exist: the run holds episodes of {', '.join(self.episode_names()) or 'nothing'}"
            )
        return read_lines(path)

    def episode_names(self) -> list[str]:
        return sorted(path.stem for path in (self.path / "episodes").glob("*.jsonl"))


def _json(path: Path) -> dict[str, Any] | None:
    """The object that a file holds, None where there is no file."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not JSON ({error}): evaluate the run again to rewrite it") from None
    if not isinstance(found, dict):
        raise BadInput(f"{path} holds no JSON object: evaluate the run again to rewrite it")
    return found


def write_whole(path: Path, text: str | Iterable[str]) -> None:
    """Write a text file so that a reader sees the old file or the new one, never a part."""
    with whole(path) as half, half.open("w", encoding="utf-8") as file:
        file.writelines([text] if isinstance(text, str) else text)
        file.flush()
        os.fsync(file.fileno())


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, one at a time, whole or not at all."""
    write_whole(path, (json.dumps(_finite(row), allow_nan=False) + "\n" for row in rows))


def _metrics_row(row: Mapping[str, Any]) -> dict[str, Any]:
    if row.get("phase") not in PHASES or not isinstance(row.get("step"), int):
        raise ValueError(f"a metrics row needs an integer step and a phase of {PHASES}, got {dict(row)!r:.200}")
    numbers = {}
    for key, value in row.items():
        if key in ("phase", "step"):
            continue
        try:
            number = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"metric {key} is not a number: {value!r:.100}") from None
        numbers[key] = number if math.isfinite(number) else None
    return {"step": row["step"], "phase": row["phase"], **numbers}


def _finite(value: Any) -> Any:
    """The same JSON value with null for numbers that JSON has no word for; NumPy scalars become plain ones."""
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if hasattr(value, "item"):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _cut_partial_line(path: Path) -> None:
    with path.open("rb+") as file:
        end = file.read().rfind(b"\n") + 1
        file.truncate(end)


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Objects of a JSON-lines file. A last line without its newline was never finished and is left out."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                return
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                row = None
            if not isinstance(row, dict):
                raise BadInput(f"{path}, line {number} is not a JSON object: remove that line or run again")
            yield row
