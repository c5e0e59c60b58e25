"""PyHealth's models as rows of studies: export of the samples, a training in PyHealth's own environment for each model
and seed, and its answers in files that `study.py predictions=[NAME:FOLDER/NAME]` reads (docs/studies.md)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.pyhealth_models import NO_LOSS
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
    """Model -> accuracy of each seed on the test samples; the files stand in folder/MODEL, each beside its log.

    python: of an environment with pyhealth==1.1.6. timeout: seconds that one training may take. BadInput without a
    python, for a task without visits, and for a training that fails.
    """
    if python is None:
        raise BadInput("--pyhealth is missing: name the python of an environment with pyhealth==1.1.6.")
    config = load(list(overrides))
    frame, labels = samples_frame(config), labels_of(config)
    result: dict[str, Any] = {"labels": list(labels), "test samples": int((frame["split"] == "test").sum())}
    with TemporaryDirectory() as private:  # patients' codes stay no longer than they are read
        samples = Path(private) / "samples.json"
        export(config, samples)
        for model in models:
            scores = []
            for seed in range(seeds):
                answers = folder / model / f"{config.data.name}-{config.task.name}-seed{seed}.csv"
                _run([str(python), str(SCRIPT), str(samples), model, str(seed), str(answers)], answers, timeout)
                scores.append(read_outside(answers, labels, frame)["correct"].mean())
            result[model] = scores
    return result


def export(config: Config, path: Path) -> None:
    """Write all samples with the codes of their visits, as PyHealth's models read them."""
    if config.task.name not in VISIT_TASKS:
        raise BadInput(f"task={config.task.name} shows no visits: choose among {', '.join(VISIT_TASKS)}.")
    records = Records(config)
    splits = records.splits
    parts = (("train", splits.train), ("valid", splits.valid), ("test", splits.test))
    rows = [_row(sample, name) for name, part in parts for sample in part]
    write_whole(path, json.dumps({"labels": list(records.task.labels), "samples": rows}))


def _row(sample: Sample, split: str) -> dict[str, Any]:
    codes = {name: [list(getattr(visit, field)) for visit in sample.history] for name, field in KINDS}
    who = {"sample_id": sample.sample_id, "patient": str(sample.subject_id)}
    return {**who, "split": split, "label": sample.label, **codes}


def _run(command: Sequence[str], answers: Path, timeout: float) -> None:
    """A training, whose words stay in a log of yours alone: a library may quote a patient in them."""
    answers.parent.mkdir(parents=True, exist_ok=True)
    log = answers.with_suffix(".log")
    try:
        with open(log, "wb", opener=partial(os.open, mode=0o600)) as out:
            code = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, timeout=timeout).returncode
    except subprocess.TimeoutExpired:
        raise BadInput(f"{answers.stem} of {answers.parent.name} took over {timeout:g} s: raise --timeout.") from None
    except OSError as error:
        raise BadInput(f"--pyhealth={command[0]} does not start ({error.strerror}): name a python.") from None
    if code == NO_LOSS:
        raise BadInput(
            f"{answers.stem} of {answers.parent.name}: no validation loss is a number, so no weights answer."
        )
    if code:
        raise BadInput(f"{answers.stem} of {answers.parent.name} ended with code {code}: {log} says why.")
