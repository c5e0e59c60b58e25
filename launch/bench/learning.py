"""What training brings: the demo experiment under several seeds (launch/benchmark.py learning)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]


def learning(seeds: int, folder: Path, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Train under seeds 0..seeds-1 ; means with 95% t-intervals over seeds."""
    runs = []
    for seed in range(seeds):
        run_dir = folder / f"seed{seed}"
        command = [sys.executable, str(ROOT / "launch" / "train_ghar.py"), "+experiment=mimic4_los"]
        command += [f"seed={seed}", f"run_dir={run_dir}", *overrides]
        print(" ".join(command), flush=True)
        subprocess.run(command, check=True, timeout=timeout)
        runs.append(_read(run_dir))
    result: dict[str, Any] = {name: t_interval([run[name] for run in runs]) for name in runs[0]}
    result["rl above sft"] = result["validation reward, RL"]["low"] > result["validation reward, SFT"]["high"]
    return result


def _read(run_dir: Path) -> dict[str, float]:
    """The numbers of one finished run."""
    rows = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    evaluated = [row for row in rows if row["phase"] == "rl" and "eval/reward" in row]
    summary = json.loads((run_dir / "summary.json").read_text())
    policies, ceilings = summary["policies"], summary["ceilings"]
    numbers = {
        "validation reward, SFT": evaluated[0]["eval/reward"],
        "validation reward, RL": max(row["eval/reward"] for row in evaluated),
        "ceiling without retrieval": ceilings["parametric"],
        "ceiling with retrieval": ceilings["retrieval"],
    }
    for name, found in policies.items():
        numbers |= {f"test accuracy, {name}": found["accuracy"][0], f"test reward, {name}": found["reward"][0]}
        if "when_f1" in found:
            numbers[f"F1 of when to retrieve, {name}"] = found["when_f1"][0]
    numbers["accuracy as share of the ceiling"] = policies["ghar_rl"]["accuracy"][0] / ceilings["retrieval"]
    numbers["seconds in all"] = sum(summary["time"].values())
    numbers["peak memory in GB"] = summary["memory_gb"]
    return numbers


def t_interval(values: Sequence[float]) -> dict[str, float]:
    """Mean and 95% interval by Student's t over seeds; a single seed has no interval."""
    from scipy.stats import t

    x = np.asarray(values, dtype=float)
    half = float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
    return {"mean": float(x.mean()), "low": float(x.mean()) - half, "high": float(x.mean()) + half, "seeds": len(x)}
