"""PyHealth's models as rows of studies: export of the samples, a training in PyHealth's own environment for each model
and seed, and its answers in files that `study.py predictions=[NAME:FOLDER/NAME]` reads (docs/studies.md)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghar.config import Config
from ghar.data.cohort import Sample
from ghar.data.tasks.visits import VISIT_TASKS
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.metrics.runfolder import write_whole
from ghar.trainers.study.outside import read_outside
from ghar.trainers.study.samples import labels_of, samples_frame

SCRIPT = Path(__file__).with_name("pyhealth_models.py")
KINDS = (("conditions", "diagnoses"), ("procedures", "procedures"), ("drugs", "medications"))


def pyhealth_rows(
    folder: Path, seeds: int, overrides: Sequence[str], python: Path | None, models: Sequence[str], timeout: float
) -> dict[str, Any]:
    """Model -> accuracy of each seed on the test samples; the files stand in folder/MODEL.

    python: of an environment with pyhealth==1.1.6. BadInput without one, for a task without visits, and for a training
    that fails, with its last line.
    """
    if python is None:
        raise BadInput("--pyhealth is missing: name the python of an environment with pyhealth==1.1.6.")
    config = load(list(overrides))
    samples = folder / "samples.json"
    export(config, samples)
    frame, labels = samples_frame(config), labels_of(config)
    found: dict[str, Any] = {"labels": list(labels), "test samples": int((frame["split"] == "test").sum())}
    for model in models:
        scores = []
        for seed in range(seeds):
            answers = folder / model / f"{config.data.name}-{config.task.name}-seed{seed}.csv"
            _run([str(python), str(SCRIPT), str(samples), model, str(seed), str(answers)], timeout)
            scores.append(read_outside(answers, labels, frame)["correct"].mean())
        found[model] = scores
    return found


def export(config: Config, path: Path) -> None:
    """Write all samples with the codes of their visits, as PyHealth's models read them, into a file that you alone can
    read."""
    if config.task.name not in VISIT_TASKS:
        raise BadInput(f"task={config.task.name} shows no visits: choose among {', '.join(VISIT_TASKS)}.")
    records = Records(config)
    splits = records.splits
    parts = (("train", splits.train), ("valid", splits.valid), ("test", splits.test))
    rows = [_row(sample, name) for name, part in parts for sample in part]
    write_whole(path, json.dumps({"labels": list(records.task.labels), "samples": rows}))
    path.chmod(0o600)


def _row(sample: Sample, split: str) -> dict[str, Any]:
    codes = {name: [list(getattr(visit, field)) for visit in sample.history] for name, field in KINDS}
    who = {"sample_id": sample.sample_id, "patient": str(sample.subject_id)}
    return {**who, "split": split, "label": sample.label, **codes}


def _run(command: Sequence[str], timeout: float) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
    print(done.stdout, end="", file=sys.stderr)
    if done.returncode:
        last = [line for line in done.stderr.splitlines() if line.strip()][-1:] or ["it printed nothing"]
        raise BadInput(f"{' '.join(command[1:4])} ended with code {done.returncode}: {last[0][:300]}")
