"""Weights & Biases: numbers when enabled, patient text only through the privacy gate.

Nothing but metrics, the configuration it is given and (on request) episode tables is handed to wandb: the console,
git state, program arguments and host description stay here, because any of them may quote a patient or a path.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghar.errors import BadInput
from ghar.metrics.runfolder import PHASES, write_whole
from ghar.privacy import LOG, WANDB, check_destination

MODES = ("disabled", "offline", "online")
_COLUMNS = ("policy", "sample_id", "patient", "label", "prediction", "correct", "retrieved", "reward")


@dataclass(frozen=True)
class Logger:
    """A W&B run, or none (`run=None`, mode "disabled") and then every call does nothing.

    credentialed: whether the patients come from credentialed data; allow: privacy.allow.
    """

    run: Any | None = None
    credentialed: bool = True
    allow: Sequence[str] = ()

    def log(self, row: Mapping[str, Any]) -> None:
        """Send the numbers of one metrics row, under their phase: "rl/train/loss" over "rl/step"."""
        if self.run is not None:
            numbers = {key: float(value) for key, value in row.items() if key != "phase" and value is not None}
            LOG.add(WANDB, "rows of metrics", len(str(numbers)))
            self.run.log({f"{row['phase']}/{key}": value for key, value in numbers.items()})

    def log_episodes(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """Send episodes, patient text included, as a table. Raises BadInput when privacy.allow does not permit it.

        Offline runs are held to the same rule: `wandb sync` would send them later.
        """
        if self.run is None:
            return
        check_destination(self.credentialed, WANDB, self.allow)
        import wandb

        data: list[Any] = []
        for row in rows:
            check_destination(row.get("credentialed", True), WANDB, self.allow)
            data.append([row[column] for column in _COLUMNS])
        LOG.add(WANDB, "episodes", sum(len(str(row)) for row in data), len(data))
        table = wandb.Table(columns=list(_COLUMNS), data=data)
        self.run.log({f"episodes/{name}": table})

    def conclude(self, policies: Mapping[str, Mapping[str, Any]]) -> None:
        """Put the numbers of the test split into the run's summary, where tables and sweeps of W&B find them:
        "test/VARIANT/METRIC", of an interval its value."""
        if self.run is None:
            return
        for name, numbers in policies.items():
            for metric, value in numbers.items():
                number = value[0] if isinstance(value, list | tuple) and value else value
                if isinstance(number, int | float) and not isinstance(number, bool):
                    self.run.summary[f"test/{name}/{metric}"] = float(number)

    def finish(self) -> None:
        if self.run is not None:
            self.run.finish()


def start_logger(
    mode: str,
    folder: Path,
    *,
    project: str,
    entity: str | None = None,
    group: str | None = None,
    config: Mapping[str, Any],
    credentialed: bool,
    allow: Sequence[str] = (),
) -> Logger:
    """Start logging a run; a resumed run folder continues its W&B run. wandb is imported only when enabled.

    mode: "disabled", "offline" (files under <folder>/wandb, nothing is sent) or "online". Raises BadInput for another
    mode, when privacy.allow does not name wandb for credentialed patients, and when wandb refuses (no login, say).
    """
    if mode not in MODES:
        raise BadInput(f"logger mode {mode!r} does not exist: use one of {', '.join(MODES)}")
    if mode == "disabled":
        return Logger()
    check_destination(credentialed, WANDB, allow)  # numbers of credentialed patients are theirs, too
    import wandb

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
            entity=entity,
            group=group,
            name=folder.name,
            id=_run_id(folder),
            resume="allow",
            dir=str(folder),
            config=dict(config),
            settings=settings,
        )
    except wandb.Error as error:
        raise BadInput(f"W&B refused to start ({error}): run `wandb login`, or log in mode offline") from None
    for phase in PHASES:
        run.define_metric(f"{phase}/*", step_metric=f"{phase}/step")
    return Logger(run, credentialed, tuple(allow))


def _run_id(folder: Path) -> str:
    """The W&B id of this run folder, drawn once and kept beside its files."""
    path = folder / "wandb_id"
    if not path.exists():
        write_whole(path, secrets.token_hex(8))
    return path.read_text()
