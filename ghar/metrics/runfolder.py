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
                        cost {prompts, tokens, scratch, replies: what choosing its examples took of a model; optional},
                        reward, failure (null or its name), turns: [{agent, role, step, prompt, reply, format_ok,
                        completed (true where the decision was chosen behind a free reply that left it open; optional),
                        evidence (text or null)}] and lookups: [{query, found: [{text, kind, score, path (meta-path or
                        null), shown (by any prompt)}]}] (optional)
episodes/training/<update>.jsonl  a few episodes of that update's batch: the same columns, and update, attempt
groups.json             sample_id -> {kind: group}: who the test samples are of (ghar.data.groups); of tasks of visits
checkpoints/            trainers/ owns it
retrievals.parquet      sample_id and retrieved (null: the episode failed) of the training samples that SFT's teacher
                        tries, where launch/record_retrievals.py wrote them
report.html             made from the above by ghar.metrics.report
ledger.jsonl            the sums of all of these but the last two (ghar.ledger); each is asked before it is read
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghar import ledger
from ghar.disk import whole
from ghar.errors import BadInput

PHASES = ("base", "sft", "rl")
CONFIG, METRICS, SUMMARY, GROUPS = "config.yaml", "metrics.jsonl", "summary.json", "groups.json"
TRAINING = "episodes/training"
RETRIEVALS = "retrievals.parquet"

_hashed: dict[Path, tuple[ledger.Looks, Any]] = {}  # metrics.jsonl -> its hash so far, as this process left it


@dataclass(frozen=True)
class RunFolder:
    """Reads and writes one run's files. `RunFolder.open` also repairs what a killed run left behind.

    Every reading raises BadInput for a file that is not as the folder's ledger says.
    """

    path: Path

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Create the folder or reopen it; a last line of metrics.jsonl that a killed run left partial is cut."""
        path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (path / "episodes").mkdir(exist_ok=True, mode=0o700)  # episodes quote patients
        folder = cls(path)
        if folder.metrics_path.exists():
            _cut_partial_line(folder.metrics_path)
        ledger.settle(path)
        if (path / ledger.LEDGER).exists():
            ledger.check(path, METRICS)
        return folder

    @property
    def metrics_path(self) -> Path:
        return self.path / METRICS

    def write_config(self, text: str) -> None:
        """Keep the composed configuration (YAML text)."""
        self._write(CONFIG, text)

    def config_text(self) -> str | None:
        """The configuration as YAML text, None where there is none."""
        return self._text(CONFIG)

    def log(self, row: Mapping[str, Any]) -> None:
        """Append one step to metrics.jsonl; it is on disk when this returns.

        Raises ValueError for a row without step and phase or with a value that is not a number.
        """
        line = (json.dumps(_metrics_row(row), allow_nan=False) + "\n").encode()
        size, digest = _hash_so_far(self.metrics_path)
        digest.update(line)
        size += len(line)
        ledger.append(self.path, {"what": "file", "name": METRICS, "size": size, "sha256": digest.hexdigest()})
        with self.metrics_path.open("ab") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        _hashed[self.metrics_path] = (ledger.looks(self.metrics_path), digest)

    def rewind(self, phase: str, step: int) -> None:
        """Forget the rows after `step` of `phase`, and of later phases, with the training episodes of these updates: a
        resumed run writes them again."""
        last = (PHASES.index(phase), step)
        kept = [row for row in self.metrics() if (PHASES.index(row["phase"]), row["step"]) <= last]
        self._write(METRICS, "".join(json.dumps(row) + "\n" for row in kept))
        for update in self.training_updates():
            if (PHASES.index("rl"), update) > last:
                self.remove(_training(update))

    def metrics(self) -> list[dict[str, Any]]:
        """Rows of metrics.jsonl, [] when there are none; a partial last line is not a row."""
        ledger.check(self.path, METRICS)
        return list(read_lines(self.metrics_path)) if self.metrics_path.exists() else []

    def write_summary(self, summary: Mapping[str, Any]) -> None:
        self._write(SUMMARY, json.dumps(_finite(summary), indent=2, allow_nan=False) + "\n")

    def summary(self) -> dict[str, Any] | None:
        """summary.json, None before the run has written one."""
        ledger.check(self.path, SUMMARY)
        return _json(self.path / SUMMARY)

    def write_groups(self, groups: Mapping[str, Mapping[str, str]]) -> None:
        """Keep which groups each test sample belongs to."""
        self._write(GROUPS, json.dumps(groups))

    def groups(self) -> dict[str, dict[str, str]]:
        """What `write_groups` has kept; nothing of a run that knows none."""
        ledger.check(self.path, GROUPS)
        return _json(self.path / GROUPS) or {}

    def write_episodes(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write episodes/<name>.jsonl, whole or not at all."""
        self._write(_episodes(name), as_lines(rows))

    def episodes(self, name: str) -> Iterator[dict[str, Any]]:
        """Rows of episodes/<name>.jsonl, one at a time."""
        path = self.path / _episodes(name)
        if not path.exists():
            raise BadInput(
                f"{path} does not exist: the run holds episodes of {', '.join(self.episode_names()) or 'nothing'}"
            )
        ledger.check(self.path, _episodes(name))
        return read_lines(path)

    def episode_names(self) -> list[str]:
        return sorted(path.stem for path in (self.path / "episodes").glob("*.jsonl"))

    def write_training_episodes(self, update: int, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write episodes/training/<update>.jsonl, whole or not at all."""
        (self.path / TRAINING).mkdir(exist_ok=True, mode=0o700)
        self._write(_training(update), as_lines(rows))

    def training_updates(self) -> list[int]:
        """Updates of which episodes were kept, in order."""
        return sorted(int(path.stem) for path in (self.path / TRAINING).glob("*.jsonl"))

    def training_episodes(self) -> Iterator[dict[str, Any]]:
        """Rows of the kept training episodes, in order of update."""
        for update in self.training_updates():
            ledger.check(self.path, _training(update))
            yield from read_lines(self.path / _training(update))

    def remove(self, name: str) -> None:
        """Remove a file by its name below the folder, where there is one."""
        if (self.path / name).exists():
            ledger.append(self.path, {"what": "removed", "name": name})
            (self.path / name).unlink(missing_ok=True)

    def remove_episodes(self) -> None:
        """Remove the episodes of all variants."""
        for name in self.episode_names():
            self.remove(_episodes(name))

    def _write(self, name: str, text: str | Iterable[str]) -> None:
        """Write a file whole, once the ledger has its sum."""
        write_whole(self.path / name, text, lambda half: ledger.append(self.path, ledger.entry(name, half)))

    def _text(self, name: str) -> str | None:
        ledger.check(self.path, name)
        try:
            return (self.path / name).read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise BadInput(f"{self.path / name} is no text ({error}): take it from a backup.") from None


def _episodes(name: str) -> str:
    return f"episodes/{name}.jsonl"


def _training(update: int) -> str:
    return f"{TRAINING}/{update}.jsonl"


def _hash_so_far(path: Path) -> tuple[int, Any]:
    """Size and SHA-256 of a file, which is not read again where this process wrote its end."""
    if not path.exists():
        return 0, hashlib.sha256()
    before = _hashed.get(path)
    if before is not None and before[0] == ledger.looks(path):
        return before[0][0], before[1].copy()
    data = path.read_bytes()
    return len(data), hashlib.sha256(data)


def _json(path: Path) -> dict[str, Any] | None:
    """The object that a file holds, None where there is no file."""
    if not path.exists():
        return None
    try:
        content = json.loads(path.read_text())
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} is not JSON ({error}): evaluate the run again to rewrite it") from None
    if not isinstance(content, dict):
        raise BadInput(f"{path} holds no JSON object: evaluate the run again to rewrite it")
    return content


def write_whole(path: Path, text: str | Iterable[str], before: Callable[[Path], None] = lambda half: None) -> None:
    """Write a text file so that a reader sees the old file or the new one, never a part.

    before: called with the finished file under its passing name, before it takes the place of the old one.
    """
    with whole(path) as half:
        with half.open("w", encoding="utf-8") as file:
            file.writelines([text] if isinstance(text, str) else text)
            file.flush()
            os.fsync(file.fileno())
        before(half)


def write_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows as JSON lines, one at a time, whole or not at all."""
    write_whole(path, as_lines(rows))


def as_lines(rows: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Rows as lines of JSON."""
    return (_as_json(row) + "\n" for row in rows)


def _as_json(row: Mapping[str, Any]) -> str:
    """A row as JSON. Most hold nothing that JSON has no word for, and looking for it takes longer than writing."""
    try:
        return json.dumps(row, allow_nan=False)
    except (TypeError, ValueError):
        return json.dumps(_finite(row), allow_nan=False)


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
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if not isinstance(row, dict):
                raise BadInput(f"{path}, line {number} is not a JSON object: remove that line or run again")
            yield row
