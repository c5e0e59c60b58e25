"""Measured claims, one command each: python launch/benchmark.py learning --seeds 3

learning: the demo experiment under several seeds; validation reward after RL against after SFT, and the test numbers
against both ceilings. Seeds run one after the other, each as its own training run (finished ones are reused).
navigation: steps per second, and how soon RLlib's PPO reaches 95% of the scripted optimum (launch/bench_navigation.py).
data: reading 20,000 generated MIMIC-IV admissions, three tasks and text views, cold and cached, against plain polars;
`--seeds` times. large: 100 million lab results of 300,000 patients, and two smaller sizes (launch/bench_data.py).
retrieval: an index over a generated graph of PrimeKG's size (`--share` of it), opened and asked, and Fig. 8(c) of the
paper on it (launch/bench_retrieval.py, launch/bench_requests.py); 5 GB on disk under --folder.
rollout: episodes per second against a lock-step loop with a retriever of 50 and of 500 ms, under `--seeds` seeds, with
the policy of the run in run_dir=... (launch/bench_rollout.py).
ppo: the optimisation part of a PPO step, `--seeds` times, against TRL 1.12's where `--trl` names a python that has it
(launch/bench_ppo.py).
patient_graph: k-NN graph and Leiden over 100,000 patients (`--share` of them), under `--seeds` seeds
(launch/bench_patient_graph.py).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]


def learning(seeds: int, folder: Path, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Train under seeds 0..seeds-1 and print means with 95% t-intervals over seeds."""
    runs = []
    for seed in range(seeds):
        run_dir = folder / f"seed{seed}"
        command = [sys.executable, str(ROOT / "launch" / "train_ghar.py"), "+experiment=mimic4_los"]
        command += [f"seed={seed}", f"run_dir={run_dir}", *overrides]
        print(" ".join(command), flush=True)
        subprocess.run(command, check=True, timeout=timeout)
        runs.append(_read(run_dir))
    result: dict[str, Any] = {name: _t_interval([run[name] for run in runs]) for name in runs[0]}
    result["rl above sft"] = result["validation reward, RL"]["low"] > result["validation reward, SFT"]["high"]
    for name, value in result.items():
        print(f"{name:40} {value if isinstance(value, bool) else _text(value)}")
    (folder / "learning.json").write_text(json.dumps(result, indent=2) + "\n")
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


def _t_interval(values: Sequence[float]) -> dict[str, float]:
    """Mean and 95% interval by Student's t over seeds; a single seed has no interval."""
    from scipy.stats import t

    x = np.asarray(values, dtype=float)
    half = float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
    return {"mean": float(x.mean()), "low": float(x.mean()) - half, "high": float(x.mean()) + half, "seeds": len(x)}


def _text(value: dict[str, float]) -> str:
    return f"{value['mean']:.3f} [{value['low']:.3f}, {value['high']:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ["learning", "navigation", "data", "large", "retrieval", "rollout", "ppo", "patient_graph"]
    parser.add_argument("what", choices=known)
    parser.add_argument("--seeds", type=int, default=3, help="seeds, or repetitions of a measurement")
    parser.add_argument("--folder", type=Path, default=Path("runs/benchmark"), help="where the runs are kept")
    parser.add_argument("--timeout", type=float, default=7200.0, help="seconds one run may take")
    parser.add_argument("--share", type=float, default=1.0, help="of the size: PrimeKG's, 100,000 patients")
    parser.add_argument("--trl", type=Path, help="ppo: python of an environment with trl==1.12")
    parser.add_argument("overrides", nargs="*", help="configuration of every run, as for launch/train_ghar.py")
    arguments = parser.parse_intermixed_args()  # overrides may follow options
    arguments.folder.mkdir(parents=True, exist_ok=True)
    if arguments.what == "navigation":
        from launch import bench_navigation

        bench_navigation.navigation(arguments.folder, arguments.seeds, arguments.overrides)
        return
    if arguments.what == "retrieval":
        from launch import bench_retrieval

        bench_retrieval.retrieval(arguments.folder / "retrieval", share=arguments.share, seed=0)
        return
    if arguments.what == "patient_graph":
        from launch import bench_patient_graph

        bench_patient_graph.patient_graph(arguments.folder, arguments.seeds, share=arguments.share)
        return
    if arguments.what == "rollout":
        from launch import bench_rollout

        bench_rollout.speed(arguments.folder, arguments.seeds, arguments.overrides)
        return
    if arguments.what == "ppo":
        from launch import bench_ppo

        bench_ppo.step(arguments.folder, arguments.seeds, arguments.overrides, arguments.trl, arguments.timeout)
        return
    if arguments.what == "learning":
        learning(arguments.seeds, arguments.folder, arguments.overrides, arguments.timeout)
        return
    from launch import bench_data

    if arguments.what == "data":
        bench_data.data(arguments.folder, runs=arguments.seeds, timeout=arguments.timeout)
    else:
        bench_data.large(arguments.folder, timeout=arguments.timeout)


if __name__ == "__main__":
    sys.path[0] = str(ROOT)  # instead of launch/
    from ghar.errors import BadInput

    try:
        main()
    except BadInput as error:
        print(error, file=sys.stderr)
        raise SystemExit(2) from None
