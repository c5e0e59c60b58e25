"""What the demo's world loses without a part of GHAR, or with another estimator of advantages.

benchmarks/run.py ablations: Table VII of GHAR. Each ablation is trained by itself, from the base model that the whole
system of its seed started from; beside it stands what it can know at best (envs/ghar/upper_bounds.py).
benchmarks/run.py estimators: the whole system with a critic (gae) and without (rloo), on as many samples.

All are scored on the same patients: means with 95% intervals over seeds and patients; differences are paired by sample.
A run that is finished already is read, not trained again: the whole system's are those of `learning`. What differs in
RL alone goes on from the whole system's warm-up.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.learning import command_of, over_both, t_interval

WHOLE = "ghar"
ABLATED: Mapping[str, Sequence[str]] = {
    WHOLE: (),
    "ni": ("system.ablation=ni",),
    "nt": ("system.ablation=nt",),
    "nl": ("system.ablation=nl",),
    "nm": ("system.ablation=nm",),
    "ns": ("system.composition=separate",),
}
SAME_WARMUP = ("ns", "gae")
EXPLAINED = {
    "variance that the critic explains": "train/explained_variance",
    "variance that boosting explains": "train/explained_variance/boosting",
}
# a critic's estimates need no second attempt, so gae plays as many patients as rloo plays attempts
ESTIMATORS: Mapping[str, Sequence[str]] = {
    WHOLE: (),
    "gae": ("trainer.rl.estimator=gae", "trainer.rl.attempts=1", "model.critic=head"),
}


def ablations(seeds: int, folder: Path, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Train GHAR and each ablation under seeds 0..seeds-1 and gather what came of it."""
    return table(_train(ABLATED, seeds, folder, overrides, timeout))


def estimators(seeds: int, folder: Path, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Train GHAR with each estimator under seeds 0..seeds-1 and gather what came of it."""
    return table(_train(ESTIMATORS, seeds, folder, overrides, timeout))


def _train(
    named: Mapping[str, Sequence[str]], seeds: int, folder: Path, overrides: Sequence[str], timeout: float
) -> dict[str, list[Path]]:
    runs = {
        name: [folder / (f"seed{i}" if name == WHOLE else f"{name}-seed{i}") for i in range(seeds)] for name in named
    }
    for seed in range(seeds):
        for name, own in named.items():
            scored = () if name == WHOLE else ("eval.variants=[ghar_rl]",)
            command = command_of(seed, runs[name][seed], [*scored, *own, *overrides])
            if name in SAME_WARMUP and not runs[name][seed].exists():
                go_on_from(runs[WHOLE][seed], command[2:])
            print(" ".join(command), flush=True)
            subprocess.run(command, check=True, timeout=timeout)
    return runs


def go_on_from(whole: Path, overrides: Sequence[str]) -> None:
    """Begin the run of `overrides` with the finished warm-up of `whole`."""
    from ghar.launch.entry import load
    from ghar.trainers.runs.fork_run import begin_from

    begin_from(whole, load(list(overrides)))


def table(runs: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """The numbers of finished runs, NAME -> one folder a seed; WHOLE is what all others are held against."""
    from ghar.metrics.runfolder import RunFolder

    rows = {name: [list(RunFolder.open(run).episodes("ghar_rl")) for run in own] for name, own in runs.items()}
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs[WHOLE]]
    result: dict[str, Any] = {}
    for name, own in rows.items():
        numbers: dict[str, Any] = {"accuracy": over_both(own, "correct"), "rounds": over_both(own, "iterations")}
        # over seeds alone: how far one seed's accuracy lies from another's
        numbers["accuracy of a seed"] = t_interval([_mean(seed, "correct") for seed in own])
        if name != WHOLE:
            numbers[f"{WHOLE} - it"] = over_both(rows[WHOLE], "correct", own)
        for about, column in EXPLAINED.items():
            explained = [value for run in runs[name] if (value := _late(run, column)) is not None]
            numbers |= {about: t_interval(explained)} if explained else {}
        ceilings = summaries[0]["ceilings"] or {}
        numbers |= {"ceiling": ceilings[name if name in ceilings else "retrieval"]} if ceilings else {}
        result[name] = numbers
    return result


def _mean(rows: Sequence[Mapping[str, Any]], column: str) -> float:
    return sum(float(row[column]) for row in rows) / len(rows)


def _late(run: Path, column: str) -> float | None:
    """Mean of a metric of training over the second half of the updates that have it; None where none has."""
    from ghar.metrics.runfolder import RunFolder

    values = [row[column] for row in RunFolder.open(run).metrics() if column in row]
    late = values[len(values) // 2 :]
    return sum(late) / len(late) if late else None
