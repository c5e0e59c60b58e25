"""Weights & Biases: numbers when enabled, patient text only through the privacy gate.

Nothing but metrics, the configuration it is given and (on request) episode tables is handed to wandb: the console,
git state, program arguments and host description stay here, because any of them may quote a patient or a path.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ghar.errors import BadInput
from ghar.metrics.runfolder import PHASES, RunFolder, write_whole
from ghar.privacy import LOG, WANDB, WANDB_SERVER, check_wandb

MODES = ("disabled", "offline", "online")
_COLUMNS = ("policy", "sample_id", "patient", "label", "prediction", "correct", "retrieved", "reward")
_TEXTS = {  # of an episode, as text: what was asked and answered, what was found, what it earned
    "dialogue": lambda row: "\n\n".join(
        f"[{turn['agent']}: {turn['role']}]\n{turn['prompt']}\n> {turn['reply']}" for turn in row.get("turns") or ()
    ),
    "evidence": lambda row: "\n".join(
        str(passage["text"]) for lookup in row.get("lookups") or () for passage in lookup["found"]
    ),
    "terms": lambda row: ", ".join(f"{term} {value:+.3f}" for term, value in (row.get("rewards") or {}).items()),
}  # fmt: skip


@dataclass(frozen=True)
class Logger:
    """A W&B run, or none (`run=None`, mode "disabled") and then every call does nothing.

    credentialed: whether the patients come from credentialed data; allow: privacy.allow; server: where rows go.
    written: reads the rows that
    the run folder holds, of a run that goes on: they are sent with the first row, when those that are written again
    have been taken out of the folder, so that the curve is whole and no point stands twice.
    """

    run: Any | None = None
    credentialed: bool = True
    allow: Sequence[str] = ()
    server: str = WANDB_SERVER
    written: Callable[[], Sequence[Mapping[str, Any]]] | None = None
    _sent: list[bool] = field(default_factory=list)  # has an entry once `written` was sent

    def log(self, row: Mapping[str, Any]) -> None:
        """Send the numbers of one metrics row, under their phase: "rl/train/loss" over "rl/step". The row is in the run
        folder already."""
        if not self._catch_up():
            self._send(row)

    def _catch_up(self) -> bool:
        """Send what the folder holds, once; whether it was done now."""
        if self.run is None or self.written is None or self._sent:
            return False
        self._sent.append(True)
        for row in self.written():
            self._send(row)
        return True

    def _send(self, row: Mapping[str, Any]) -> None:
        if self.run is not None:
            numbers = {key: float(value) for key, value in row.items() if key != "phase" and value is not None}
            LOG.add(WANDB, "rows of metrics", len(str(numbers)))
            self.run.log({f"{row['phase']}/{key}": value for key, value in numbers.items()})

    def log_episodes(self, name: str, rows: Iterable[Mapping[str, Any]], more: Sequence[str] = ()) -> None:
        """Send episodes, patient text included, as a table. Raises BadInput when privacy.allow does not permit it.

        more: further columns that these rows have. Offline runs are held to the same rule: `wandb sync` would send them
        later.
        """
        if self.run is None:
            return
        check_wandb(self.credentialed, self.server, self.allow)
        import wandb

        columns: list[Any] = [*more, *_COLUMNS, *_TEXTS]
        data: list[Any] = []
        for row in rows:
            check_wandb(row.get("credentialed", True), self.server, self.allow)
            data.append([*(row[column] for column in (*more, *_COLUMNS)), *(tell(row) for tell in _TEXTS.values())])
        LOG.add(WANDB, "episodes", sum(len(str(row)) for row in data), len(data))
        table = wandb.Table(columns=columns, data=data)
        self.run.log({f"episodes/{name}": table})

    def conclude(self, policies: Mapping[str, Mapping[str, Any]], split: str = "test") -> None:
        """Put the numbers of an evaluation into the run's summary, where tables and sweeps of W&B find them:
        "SPLIT/VARIANT/METRIC", of an interval its value. split: that was played."""
        if self.run is None:
            return
        self._catch_up()  # where nothing was left to train
        for name, numbers in policies.items():
            for metric, value in numbers.items():
                number = value[0] if isinstance(value, list | tuple) and value else value
                if isinstance(number, int | float) and not isinstance(number, bool):
                    self.run.summary[f"{split}/{name}/{metric}"] = float(number)

    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()


def start_logger(
    mode: str,
    folder: Path,
    *,
    project: str,
    config: Mapping[str, Any],
    credentialed: bool,
    allow: Sequence[str] = (),
) -> Logger:
    """Start logging a run; wandb is imported only when enabled.

    A run folder that goes on begins a W&B run of its own, which gets the whole curve from metrics.jsonl: a run of W&B
    cannot take points back. What the start before it kept offline is moved to <folder>/wandb/superseded.

    mode: "disabled", "offline" (files under <folder>/wandb, nothing is sent) or "online". Raises BadInput for another
    mode, when privacy.allow does not name wandb for credentialed patients, and when wandb refuses (no login, say).
    """
    if mode not in MODES:
        raise BadInput(f"logger mode {mode!r} does not exist: use one of {', '.join(MODES)}")
    if mode == "disabled":
        return Logger()
    check_wandb(credentialed, WANDB_SERVER, allow)  # numbers of credentialed patients are theirs, too
    import wandb

    server = wandb.setup().settings.base_url  # a file of settings may name another one than WANDB_BASE_URL
    check_wandb(credentialed, server, allow)
    run_id, earlier = _run_id(folder)
    if earlier:
        _set_aside(folder / "wandb")
    settings = wandb.Settings(
        console="off",
        disable_git=True,
        save_code=False,
        disable_code=True,
        disable_job_creation=True,
        silent=True,
        x_disable_meta=True,
        x_disable_machine_info=True,
    )
    try:
        run = wandb.init(
            mode=mode,  # type: ignore[arg-type]
            project=project,
            name=folder.name,
            id=run_id,
            dir=str(folder),
            config=dict(config),
            settings=settings,
        )
    except wandb.Error as error:
        raise BadInput(f"W&B refused to start ({error}): run `wandb login`, or log in mode offline") from None
    for phase in PHASES:
        run.define_metric(f"{phase}/*", step_metric=f"{phase}/step")
    return Logger(run, credentialed, tuple(allow), server, RunFolder(folder).metrics)


def _run_id(folder: Path) -> tuple[str, bool]:
    """The W&B id of this start, kept beside the run's files, and whether there was one before: ID, ID-2, ID-3, ..."""
    path = folder / "wandb_id"
    earlier = path.read_text().strip() if path.exists() else ""
    first, _, number = earlier.partition("-")
    run_id = f"{first}-{int(number or 1) + 1}" if earlier else secrets.token_hex(8)
    write_whole(path, run_id)
    return run_id, bool(earlier)


def _set_aside(kept: Path) -> None:
    """Move the offline runs of earlier starts out of the way of `wandb sync --sync-all`."""
    for run in sorted(kept.glob("offline-run-*")):
        (kept / "superseded").mkdir(exist_ok=True, mode=0o700)
        run.replace(kept / "superseded" / run.name)
