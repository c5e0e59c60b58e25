"""How soon each estimator learns the ward round of benchmarks/ward.py, a world that was made to test a critic.

mappo         multi-agent PPO with a critic of its own, one attempt a patient
rloo          policy gradients without a critic, two attempts a patient (which a ward does not have: its advantage)
reinforce_pp  policy gradients without a critic, one attempt a patient

Each seed has a world, a model and an SFT of its own, from which every arm plays as many episodes an update. What counts
is the number of episodes until the reward of 400 validation patients, whose replies are the likeliest ones, first comes
`SHARE` of the way from the teacher to the best policy there is. An arm that does not come there within `UPDATES` counts
as if it came at the end, and is counted as cut. Settings, goal and updates were chosen on the validation patients of
seed 100, which no table shows (docs/results.md has what was tried). Every step goes on where it was killed.
"""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
UPDATES, EPISODES, EVERY, SHARE = 40, 256, 2, 1 / 4
SETTINGS = (
    "system=benchmarks.ward", "task=read", "data.patients=60", "threads=1", "trainer.base.steps=0",
    "trainer.warmup.samples=1500", "trainer.warmup.attempts=1", "trainer.warmup.epochs=4", "trainer.warmup.lr=1.0e-3",
    f"trainer.rl.episodes={EPISODES}", "trainer.rl.lr=2.0e-4", f"trainer.rl.eval_every={EVERY}",
    "trainer.rl.eval_samples=400", "trainer.rl.select=reward", "trainer.rl.kl=0", "trainer.rl.lam=1.0",
    "trainer.rl.value_epochs=4", f"trainer.rl.save_every={EVERY}", "model.critic=own",
    "eval.variants=[ward,ward_sft,wanderer,best,at_once]",
)  # fmt: skip
ARMS = {
    "mappo": ("trainer.rl.estimator=gae", "trainer.rl.attempts=1"),
    "rloo": ("trainer.rl.estimator=rloo", "trainer.rl.attempts=2"),
    "reinforce_pp": ("trainer.rl.estimator=reinforce_pp", "trainer.rl.attempts=1", "trainer.rl.lr=4.0e-4"),
}
EXPLAINED = "train/explained_variance"
CRITIC_FROM = 10  # the first update whose explained variance counts


def ward_round(folder: Path, seeds: int, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Train what is not trained, seed by seed; episodes until the goal, explained variance and test rewards."""
    rows = []
    for seed in range(seeds):
        runs = _trained(folder / f"seed-{seed}", [*SETTINGS, f"seed={seed}", *overrides], timeout)
        goal = _goal([*SETTINGS, f"seed={seed}", *overrides])
        rows.append({name: _numbers(run, goal) for name, run in runs.items()} | {"goal": goal})
    return numbers(rows)


def numbers(seeds: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Mean over seeds with t-intervals. seeds: arm -> its numbers, and "goal".

    "fewer than": what part of the other arm's episodes MAPPO needs less, by the mean of the logarithm of their ratio.
    """
    from benchmarks.learning import t_interval

    result: dict[str, Any] = {"goal": t_interval([own["goal"] for own in seeds])}
    for name in ARMS:
        own = [seed[name] for seed in seeds]
        result[name] = {
            "episodes": t_interval([one["episodes"] for one in own]),
            "cut": sum(one["cut"] for one in own),
            "each": [one["episodes"] for one in own],
            "rewards of test patients": t_interval([one["test"] for one in own]),
            "curves": [one["curve"] for one in own],
        }
    for column, title in (
        ("sft", "SFT"),
        ("wanderer", "teacher"),
        ("best", "best policy"),
        ("at_once", "never asking"),
    ):
        result[title] = t_interval([seed["mappo"][column] for seed in seeds])
    result["explained variance"] = t_interval([seed["mappo"]["explained"] for seed in seeds])
    result["seeds with 0.3"] = sum(seed["mappo"]["explained"] >= 0.3 for seed in seeds)
    result["fewer than"] = {}
    for name in ("rloo", "reinforce_pp"):
        logs = [math.log(seed["mappo"]["episodes"] / seed[name]["episodes"]) for seed in seeds]
        mean, low, high = (t_interval(logs)[key] for key in ("mean", "low", "high"))
        result["fewer than"][name] = {
            "mean": 1 - math.exp(mean), "low": 1 - math.exp(high), "high": 1 - math.exp(low), "seeds": len(seeds)
        }  # fmt: skip
    return result


def until(curve: Sequence[tuple[int, float]], goal: float) -> tuple[int, bool]:
    """Episodes played when a curve of (update, reward) first comes to the goal, and whether it never does."""
    updates = [update for update, value in curve if value >= goal]
    return (max(updates[0], EVERY) if updates else UPDATES) * EPISODES, not updates


def _trained(folder: Path, overrides: Sequence[str], timeout: float) -> dict[str, Path]:
    from ghar.launch.entry import load
    from ghar.trainers.runs.fork_run import begin_from

    _train(folder / "sft", [*overrides, "trainer.rl.updates=0", "eval.variants=[wanderer]"], timeout)
    for name, own in ARMS.items():
        settings = [*overrides, *own, f"trainer.rl.updates={UPDATES}"]
        if not (folder / name).exists():
            begin_from(folder / "sft", load([*settings, f"run_dir={folder / name}"]))
        _train(folder / name, settings, timeout)
    return {name: folder / name for name in ARMS}


def _train(run: Path, overrides: Sequence[str], timeout: float) -> None:
    from ghar.launch.entry import load
    from ghar.trainers.runs.resume import finished

    settings = [*overrides, f"run_dir={run}"]
    if finished(load(settings)):  # refuses a run of other settings
        return
    command = [sys.executable, str(ROOT / "launch" / "train.py"), *settings]
    print(" ".join(command), flush=True)
    subprocess.run(command, check=True, timeout=timeout, cwd=ROOT)


def _goal(overrides: Sequence[str]) -> float:
    """`SHARE` of the way from the teacher to the best policy, on the validation patients of the seed."""
    from benchmarks import ward
    from ghar.envs.play import play, stage_of
    from ghar.envs.records import Records
    from ghar.launch.entry import load

    config = load([*overrides, "run_dir=unused"])
    system = ward.build(Records(config), ward.Settings())
    earned = {}
    for name in ("wanderer", "best"):
        stage = stage_of(system, system.variants[name], config)
        episodes = play(stage, system.cases.valid, system.fixed[name](), seed=config.seed, title=name)
        earned[name] = [ward.reward(e, case).total for e, case in zip(episodes, system.cases.valid, strict=True)]
    teacher, best = (float(np.mean(earned[name])) for name in ("wanderer", "best"))
    return teacher + SHARE * (best - teacher)


def _numbers(run: Path, goal: float) -> dict[str, Any]:
    from ghar.metrics.runfolder import RunFolder

    folder = RunFolder.open(run)
    rows = [row for row in folder.metrics() if row["phase"] == "rl"]
    curve = [(int(row["step"]), float(row["eval/reward"])) for row in rows if "eval/reward" in row]
    explained = [row[EXPLAINED] for row in rows if row["step"] >= CRITIC_FROM and EXPLAINED in row]
    episodes, cut = until(curve, goal)
    test = {name: float(np.mean([row["reward"] for row in folder.episodes(name)])) for name in
            ("ward", "ward_sft", "wanderer", "best", "at_once")}  # fmt: skip
    return {
        "episodes": episodes, "cut": cut, "curve": curve, "test": test["ward"], "sft": test["ward_sft"],
        "wanderer": test["wanderer"], "best": test["best"], "at_once": test["at_once"],
        "explained": float(np.mean(explained)) if explained else float("nan"),
    }  # fmt: skip
