"""What training brings: an experiment under several seeds (benchmarks/run.py learning), GHAR's demo unless a
+experiment=NAME among the overrides names another.

Every seed has patients in common with the others (data.world_seed stays), but a base model of its own
(trainer.base.seed follows the seed), so that the interval covers the luck of the model that is started from as well as
that of training. With --worlds every seed has a generated world of its own too (data.world_seed follows the seed):
other patients, and other severities and relations behind them, so that the interval covers the luck of the world.

From each seed's warm-up two controls of RL are trained, by rejection-sampling fine-tuning: "rft" with as many episodes,
and "rft_tokens" with as many trained reply tokens. The second has as many rounds as it takes at the mean of the first,
many times RL's updates where few episodes are kept; what share of RL's tokens it had is among the results.

"validation reward, RL" is that of the best update, the warm-up's among them. It is chosen by the same number, so it is
too high and never below "validation reward, SFT", and nothing is concluded from it. "rl above sft" says whether the
interval of the paired difference in test reward lies above 0, of which nothing was chosen.

Test numbers are means with 95% intervals over seeds and patients (ghar/metrics/seeds.py). What a run keeps only as one
number (rewards on the validation split, F1 of retrieval, time, memory) has a t-interval over seeds.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = {"accuracy": "correct", "reward": "reward"}  # of the rows of episodes
CEILINGS = {
    "parametric": "ceiling without retrieval", "memory": "ceiling with memory of the training patients",
    "retrieval": "ceiling with retrieval",
}  # fmt: skip
Rows = Sequence[Mapping[str, Any]]
RFT, RFT_TOKENS = "rft", "rft_tokens"  # controls of RL: as many episodes, as many trained reply tokens
CONTROLS = (RFT, RFT_TOKENS)
ATTEMPTS = 4  # of the controls at a patient, where RL plays one


def learning(
    seeds: int, folder: Path, overrides: Sequence[str], timeout: float, worlds: bool = False
) -> dict[str, Any]:
    """Train under seeds 0..seeds-1, and the controls of RL from the same warm-ups; gather what came of it.

    worlds: each seed has a world of its own. BadInput where the patients are not generated here, or
    where the overrides name data.world_seed.
    """
    runs = [folder / f"{'world' if worlds else 'seed'}{seed}" for seed in range(seeds)]
    if worlds:
        _check_generated(command_of(0, runs[0], overrides)[2:])
    trained: list[dict[str, Path]] = []
    for seed, run_dir in enumerate(runs):
        own = [*([f"data.world_seed={seed}"] if worlds else []), *overrides]
        trained.append(train(seed, run_dir, own, timeout))
    controls = {name: [own[name] for own in trained] for name in CONTROLS if all(name in own for own in trained)}
    for name in CONTROLS:
        if name not in controls and any(name in own for own in trained):
            print(f"{name} is left out: not every seed has it.", flush=True)
    return gathered(runs, controls, worlds)


def train(
    seed: int, run_dir: Path, overrides: Sequence[str], timeout: float, controls: Sequence[str] = CONTROLS
) -> dict[str, Path]:
    """Train one seed and the named controls of its RL; return the folder of each control that was trained.

    None is trained where RL has no update, and none by tokens where one of both trained none or did not count them.
    """
    from ghar.launch.entry import load

    _start(command_of(seed, run_dir, overrides), timeout)
    updates = load(command_of(seed, run_dir, overrides)[2:]).trainer.rl.updates
    folders: dict[str, Path] = {}
    if updates and controls:
        folders[RFT] = _control(RFT, seed, run_dir, overrides, updates, timeout)
    if RFT in folders and RFT_TOKENS in controls:
        wanted, round_tokens = trained_tokens(run_dir), trained_tokens(folders[RFT]) / updates
        if wanted and round_tokens:
            rounds = math.ceil(wanted / round_tokens)
            folders[RFT_TOKENS] = _control(RFT_TOKENS, seed, run_dir, overrides, rounds, timeout)
    return folders


def trained_tokens(run_dir: Path) -> int:
    """Return the reply tokens of episodes that a finished run was trained on; 0 where it counted none."""
    trained_on = json.loads((run_dir / "summary.json").read_text()).get("trained_on") or {}
    return trained_on.get("episode reply tokens", 0)


def _start(command: Sequence[str], timeout: float) -> None:
    print(" ".join(command), flush=True)
    subprocess.run(command, check=True, timeout=timeout)


def _check_generated(overrides: Sequence[str]) -> None:
    """Refuse patients that are not generated, as no seed has others, and a world that all seeds share."""
    from ghar.errors import BadInput
    from ghar.launch.entry import load

    if named := [text for text in overrides if text.lstrip("+").startswith("data.world_seed=")]:
        raise BadInput(f"--worlds sets data.world_seed to each seed: leave {named[0]} out.")

    if (root := load(overrides).data.root) is not None:
        raise BadInput(
            f"--worlds generates other patients for each seed, and data.root={root} has its own: leave it out."
        )


def _control(name: str, seed: int, whole: Path, overrides: Sequence[str], rounds: int, timeout: float) -> Path:
    """Train so many rounds of rejection-sampling fine-tuning from the warm-up of `whole`."""
    from ghar.launch.entry import load
    from ghar.trainers.runs.fork_run import begin_from

    rl = load(command_of(seed, whole, overrides)[2:]).trainer.rl
    run_dir, main = whole.with_name(f"{name}-{whole.name}"), json.loads((whole / "summary.json").read_text())["main"]
    attempts = rl.attempts if rl.attempts > 1 else min(ATTEMPTS, rl.episodes)
    own = ["trainer.method=rft", f"trainer.rl.attempts={attempts}", f"trainer.rl.updates={rounds}"]
    command = command_of(seed, run_dir, [*overrides, *own, f"eval.variants=[{main}]"])
    if not run_dir.exists():
        begin_from(whole, load(command[2:]))
    _start(command, timeout)
    return run_dir


def command_of(seed: int, run_dir: Path, overrides: Sequence[str]) -> list[str]:
    """The command line of one seed; its base model is its own."""
    own = [f"seed={seed}", f"trainer.base.seed={seed}", f"run_dir={run_dir}"]
    named = [] if any(text.startswith("+experiment=") for text in overrides) else ["+experiment=mimic4_los"]
    return [sys.executable, str(ROOT / "launch" / "train.py"), *named, *own, *overrides]


def gathered(
    runs: Sequence[Path], controls: Mapping[str, Sequence[Path]] | None = None, worlds: bool = False
) -> dict[str, Any]:
    """The numbers of finished runs, one for each seed. Ceilings are left out where a run knows none.

    controls: runs of rejection-sampling fine-tuning from the same warm-ups, by the name of their rows. worlds: runs
    have no patient in common, also where they number them alike.
    """
    from ghar.metrics.runfolder import RunFolder

    folders = [RunFolder.open(run) for run in runs]
    summaries = [json.loads((run / "summary.json").read_text()) for run in runs]
    single = [_single(folder, summary) for folder, summary in zip(folders, summaries, strict=True)]
    result: dict[str, Any] = {
        name: t_interval([run[name] for run in single]) for name in single[0] if all(name in run for run in single)
    }
    for name, own in (controls or {}).items():
        if spent := sum(map(trained_tokens, runs)):
            result[f"trained reply tokens, {name} as share of RL's"] = sum(map(trained_tokens, own)) / spent
    rows = rows_by_policy(runs, controls)
    if worlds:
        rows = {name: [_of_world(i, own) for i, own in enumerate(seeds)] for name, seeds in rows.items()}
    for name, seeds in rows.items():
        columns = COLUMNS if any(row["turns"] for row in seeds[0]) else {"accuracy": COLUMNS["accuracy"]}  # a baseline
        result |= {f"test {about}, {name}": over_both(seeds, column) for about, column in columns.items()}
        result |= _by_look_ups(name, seeds)
    main, before = summaries[0]["main"], summaries[0]["before"]
    if before in rows and main in rows:
        pair = rows[main], rows[before]
        for about, column in COLUMNS.items():
            result[f"test {about}, {main} - {before}"] = over_both(pair[0], column, pair[1])
            result[f"test {about} of a seed, {main} - {before}"] = over_seeds(pair[0], column, pair[1])
        result["rl above sft"] = result[f"test reward, {main} - {before}"]["low"] > 0
        for other in [name for name in rows if name not in (main, before)]:
            result[f"test accuracy, {main} - {other}"] = over_both(rows[main], "correct", rows[other])
            result[f"test accuracy of a seed, {main} - {other}"] = over_seeds(rows[main], "correct", rows[other])
    if "ceiling with retrieval" in result and main in rows:
        share = result[f"test accuracy, {main}"]["mean"] / result["ceiling with retrieval"]["mean"]
        result["accuracy as share of the ceiling"] = share
    return result


def rows_by_policy(runs: Sequence[Path], controls: Mapping[str, Sequence[Path]] | None = None) -> dict[str, list[Rows]]:
    """Rows of each policy, seed by seed; those of the controls by their names."""
    from ghar.metrics.runfolder import RunFolder

    summary = json.loads((runs[0] / "summary.json").read_text())
    rows: dict[str, list[Rows]] = {
        name: [list(RunFolder.open(run).episodes(name)) for run in runs] for name in summary["policies"]
    }
    for name, own in (controls or {}).items():
        rows[name] = [list(RunFolder.open(run).episodes(summary["main"])) for run in own]
    return rows


def _of_world(number: int, rows: Rows) -> Rows:
    """Name the patients by their world."""
    return [{**row, "subject_id": f"{number}/{row['subject_id']}"} for row in rows]


def _by_look_ups(name: str, seeds: Sequence[Rows]) -> dict[str, Any]:
    """A variant's accuracy by the look-ups that a sample needs, where the world says so, and its rounds."""
    if not all("look_ups" in row for own in seeds for row in own):
        return {}
    kinds = sorted({row["look_ups"] for own in seeds for row in own})
    groups = {kind: [[row for row in own if row["look_ups"] == kind] for own in seeds] for kind in kinds}
    scores = {f"test accuracy at {kind} look-ups, {name}": over_both(own, "correct") for kind, own in groups.items()}
    return scores | {f"test rounds, {name}": over_both(seeds, "iterations")}


def _single(folder: Any, summary: Mapping[str, Any]) -> dict[str, float]:
    """What one finished run has one number of."""
    numbers: dict[str, float] = {}
    rows = [row for row in folder.metrics() if row["phase"] == "rl"]
    evaluated = [row["eval/reward"] for row in rows if row.get("eval/reward") is not None]
    if evaluated:
        numbers |= {"validation reward, SFT": evaluated[0], "validation reward, RL": max(evaluated)}
    for name, ceiling in (summary["ceilings"] or {}).items():
        numbers[CEILINGS.get(name, f"ceiling {name}")] = ceiling
    for name, ceiling in summary.get("found_ceilings", {}).items():
        numbers[f"ceiling with what was found, {name}"] = ceiling
    for name, scores in summary["policies"].items():
        if "when_f1_by_decision" in scores:
            numbers[f"F1 of when to retrieve by decision, {name}"] = scores["when_f1_by_decision"][0]
    numbers["seconds in all"] = sum(summary["time"].values())
    numbers["peak memory in GB"] = summary["memory_gb"]
    return numbers


def over_both(seeds: Sequence[Rows], column: str, other: Sequence[Rows] | None = None) -> dict[str, float]:
    """Mean of a column, or of its difference from `other`'s, with an interval over seeds and patients."""
    from ghar.metrics.rows import paired, patients_of
    from ghar.metrics.seeds import seeds_and_patients, seeds_and_patients_difference

    who = [patients_of(rows) for rows in seeds]
    if other is None:
        interval = seeds_and_patients([[float(row[column]) for row in rows] for rows in seeds], who)
    else:
        pairs = [paired(a, b) for a, b in zip(seeds, other, strict=True)]
        first, second = ([[float(pair[i][column]) for pair in own] for own in pairs] for i in (0, 1))
        interval = seeds_and_patients_difference(first, second, who)
    mean, low, high = interval.as_list()
    patients, samples = len({name for own in who for name in own}), max(len(own) for own in who)
    return {"mean": mean, "low": low, "high": high, "seeds": len(who), "patients": patients, "samples": samples}


def over_seeds(seeds: Sequence[Rows], column: str, other: Sequence[Rows]) -> dict[str, float]:
    """Each seed's mean paired difference of a column, with a t-interval over seeds: patients are taken as given.

    Percentiles of two or three seeds hold the truth too rarely (ghar/metrics/seeds.py).
    """
    from ghar.metrics.rows import paired

    pairs = [paired(a, b) for a, b in zip(seeds, other, strict=True)]
    return t_interval([sum(float(a[column]) - float(b[column]) for a, b in own) / len(own) for own in pairs])


def t_interval(values: Sequence[float]) -> dict[str, float]:
    """Mean and 95% interval by Student's t over seeds; a single seed has no interval."""
    from scipy.stats import t

    x = np.asarray(values, dtype=float)
    half = float(t.ppf(0.975, len(x) - 1) * x.std(ddof=1) / np.sqrt(len(x))) if len(x) > 1 else float("nan")
    return {"mean": float(x.mean()), "low": float(x.mean()) - half, "high": float(x.mean()) + half, "seeds": len(x)}
