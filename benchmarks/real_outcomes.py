"""Measure baselines on outcomes of real patients, and the smallest difference that the test can show.

The usual label, the length of the last stay, regression and boosting on counts of codes (envs/baselines), fitted to the
training patients of data.root. No model plays. Each is compared with the usual label, pair by pair on the test samples.
"detectable" is the smallest difference of accuracy that a test of as many samples shows in four of five such studies,
given in how many samples exactly one of the two is right (ghar/metrics/significance.py). Samples count as independent
there, so with several stays a patient the true number is larger.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ghar.errors import BadInput

VARIANTS = ("usual", "last_stay", "counts_lr", "boosting")


def real_outcomes(folder: Path, overrides: Sequence[str]) -> dict[str, Any]:
    """Fit and play the baselines on one task. BadInput for generated patients."""
    from benchmarks.learning import over_both
    from ghar.envs import system as systems
    from ghar.envs.records import Records
    from ghar.launch.entry import load
    from ghar.metrics.rows import paired
    from ghar.metrics.runfolder import RunFolder
    from ghar.metrics.significance import detectable_difference
    from ghar.trainers.evaluation.evaluate import evaluate_system, lean
    from ghar.trainers.runs.models import use_cores

    config = load(["system=baselines", f"eval.variants=[{','.join(VARIANTS)}]", f"run_dir={folder}", *overrides])
    if config.data.root is None:
        raise BadInput("real_outcomes is about real patients: set data.root to their tables.")
    use_cores(config.threads)
    run = RunFolder.open(folder / "real_outcomes" / f"{config.data.name}-{config.task.name}")
    summary = evaluate_system(systems.build(Records(config)), config, run)
    rows = {name: lean(run, name) for name in VARIANTS}
    result: dict[str, Any] = {}
    for name, own in rows.items():
        result[name] = {"accuracy": over_both([own], "correct")}
        if ranking := summary["policies"][name].get("auroc"):
            result[name]["auroc"] = dict(zip(("mean", "low", "high"), ranking, strict=True))
        if name != "usual":
            differ = sum(a["correct"] != b["correct"] for a, b in paired(own, rows["usual"])) / len(own)
            result[name]["accuracy, less usual"] = over_both([own], "correct", [rows["usual"]])
            result[name]["one of both right"] = differ
            result[name]["detectable"] = detectable_difference(len(own), differ)
    return result
