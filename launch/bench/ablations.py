"""Table VII of GHAR on the demo's world: what each part of the system is worth (launch/benchmark.py ablations).

Every ablation is trained by itself, from the base model that the whole system of its seed started from, and is scored
on the same patients; beside it stands what it can know at best (envs/ghar/ceilings.py). Means with 95% intervals over
seeds and patients; differences are paired by sample. A run that is finished already is read, not trained again.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from launch.bench.learning import command_of, over_both

ABLATED: Mapping[str, Sequence[str]] = {
    "ghar": (),
    "ni": ("system.ablation=ni",),
    "nt": ("system.ablation=nt",),
    "nl": ("system.ablation=nl",),
    "nm": ("system.ablation=nm",),
    "ns": ("system.composition=separate",),
}


def ablations(seeds: int, folder: Path, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Train GHAR and each ablation under seeds 0..seeds-1 and gather what came of it."""
    runs = {name: [folder / f"{name}-seed{seed}" for seed in range(seeds)] for name in ABLATED}
    for seed in range(seeds):
        for name, own in ABLATED.items():
            command = command_of(seed, runs[name][seed], ["eval.variants=[ghar_rl]", *own, *overrides])
            print(" ".join(command), flush=True)
            subprocess.run(command, check=True, timeout=timeout)
    return table(runs)


def table(runs: Mapping[str, Sequence[Path]]) -> dict[str, Any]:
    """The numbers of finished runs, NAME -> one folder a seed; "ghar" is what all others are held against."""
    from ghar.metrics.runfolder import RunFolder

    rows = {name: [list(RunFolder.open(run).episodes("ghar_rl")) for run in own] for name, own in runs.items()}
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs["ghar"]]
    result: dict[str, Any] = {}
    for name, own in rows.items():
        found: dict[str, Any] = {"accuracy": over_both(own, "correct"), "rounds": over_both(own, "iterations")}
        if name != "ghar":
            found["ghar - it"] = over_both(rows["ghar"], "correct", own)
        ceilings = summaries[0]["ceilings"] or {}
        best = ceilings.get("retrieval" if name in ("ghar", "ns") else name)
        result[name] = found | ({} if best is None else {"ceiling": best})
    return result
