"""What each way of training adds to SFT on order check: arms from one SFT, on test questions that were never opened.

sft     SFT on the scripted teacher's right episodes, all weights (folder/seed-0/sft)
rloo    from there, policy gradients without a critic
rft     from there, rejection-sampling fine-tuning
mappo   from there, multi-agent PPO with a critic of its own
label   the base model after SFT on labels alone, of as many training questions as SFT has; all weights, never searching

Beside them are played: rules, the base model frozen and prompted (`ghar_base`), and the weights of SFT never searching
(`llm_only`), searching for each condition (`always_rag`) and reading after fixed searches (`reads`).
rloo, rft and mappo play as many episodes on the same questions, and train adapters. Their last weights are played, so
none are chosen by a validation. `--arms` names those to train and play; contrasts with an arm left out are left out.
`--line` names updates after which the weights of an arm are played, too (`keep_last` must have kept them). `--last`
names the update after which arms were stopped: its weights are played as their last, and no such arm is trained on.
`--seeds` are trained from SFT on, each in a folder of its own. All is trained before a test question is opened. The
first `OPENED` of the test are left out, which tables of docs/order-check.md and docs/order-check-runs.md have shown;
`PLAYED` of those behind them are played. Every step goes on where it was killed: runs by their own checkpoints,
evaluations by the episodes played.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from ghar.envs.system import System
    from ghar.metrics.rows import Row

OPENED, PLAYED = 1140, 72
ROOT = Path(__file__).resolve().parents[1]
SFT = ("model.lora_rank=null", "trainer.warmup.batch=8", "trainer.warmup.lr=1.0e-4", "trainer.rl.updates=0")
LABEL = "label_sft"
RULES = ("usual", "degree", "lexical", "scripted", "scripted_one", "scripted_all", "scripted_first", "upper_bound",
         "facts_regression", "minilm")  # fmt: skip


@dataclass(frozen=True)
class Arm:
    """A run from the SFT of folder/sft. settings: overrides of its configuration; variant: what is played of it;
    listed: what its own evaluation lists, so that it is trained; weights: overrides that name what is played."""

    settings: tuple[str, ...]
    variant: str = "ghar_rl"
    listed: str = "usual"
    weights: tuple[str, ...] = ("eval.checkpoint=${run_dir}/checkpoints/step-${trainer.rl.updates}",)


ARMS = {
    "rloo": Arm(("trainer.method=mappo", "trainer.rl.estimator=rloo")),
    "rft": Arm(("trainer.method=rft",)),
    "mappo": Arm(("trainer.method=mappo", "trainer.rl.estimator=gae")),
    "label": Arm((*SFT, "task.max_train=${trainer.warmup.samples}"), LABEL, LABEL, ()),
}
OF_SFT = (*RULES, "ghar_base", "ghar_sft", "llm_only", "always_rag", "reads")
AFTER = " after "
COLUMNS = ("correct", "named", "reward", "retrievals")
CONTRASTS = (
    ("rloo", "ghar_sft"), ("mappo", "ghar_sft"), ("rft", "ghar_sft"), ("rloo", "rft"), ("mappo", "rft"),
    ("mappo", "rloo"), ("ghar_sft", "llm_only"), ("ghar_sft", "always_rag"), ("ghar_sft", "ghar_base"),
    ("ghar_sft", "label"), ("ghar_sft", "scripted"), ("ghar_sft", "lexical"), ("ghar_sft", "facts_regression"),
    ("reads", "ghar_sft"),
)  # fmt: skip


def order_arms(
    folder: Path,
    overrides: Sequence[str],
    timeout: float,
    arms: Sequence[str],
    seeds: int,
    line: Sequence[int] = (),
    last: int | None = None,
) -> dict[str, Any]:
    """Train what is not trained, play what is not played; numbers by group and paired differences, whose intervals
    draw patients, drugs and, where there are several, seeds. arms: names of `ARMS`, in the order of training; seeds:
    as many, from 0, each with an SFT of its own; line: updates whose weights are played beside the last; last: the
    update after which the arms that have updates were stopped."""
    from ghar.envs.ghar.orders.baselines import sentence_encoder
    from ghar.launch.entry import load
    from ghar.trainers.runs.resume import finished

    if last is not None and any(update >= last for update in line):
        raise SystemExit(f"--line names earlier updates than --last {last}: leave the others out.")
    if unknown := [name for name in arms if name not in ARMS]:
        raise SystemExit(f"--arms {','.join(unknown)}: choose among {', '.join(ARMS)}.")
    sentence_encoder()  # refused where its package is absent: it plays only after hours of training
    chosen = {name: _after(ARMS[name], last) for name in arms}
    if (folder / "sft").exists():
        raise SystemExit(f"{folder} has the runs of one seed as earlier versions laid them: move them to seed-0 in it.")
    runs = [(folder / f"seed-{seed}", [*overrides, f"seed={seed}"]) for seed in range(seeds)]
    for own, settings in runs:
        stopped = {name: arm for name, arm in chosen.items() if last is not None and arm.weights}
        train_arms(own, settings, {name: arm for name, arm in chosen.items() if name not in stopped}, timeout)
        for name, arm in stopped.items():
            finished(load(_settings(own / name, [*settings, *arm.settings], arm.listed)))  # refuses other settings
    played = [own / name for own, _ in runs for name, arm in chosen.items() if arm.weights]
    updates = (*line, *(() if last is None else (last,)))
    steps = [run / "checkpoints" / f"step-{update}" for run in played for update in updates]
    if absent := [step for step in steps if not step.is_dir()]:
        raise SystemExit(
            f"{absent[0]} was not kept: --line and --last need trainer.rl.save_every and keep_last that keep it."
        )
    result = numbers([_play_arms(own, settings, chosen, line) for own, settings in runs], _draw_of(overrides))
    return result if last is None else result | {"stopped after": last}


def _after(arm: Arm, update: int | None) -> Arm:
    """The arm with its weights after an update as those that are played; None, and an arm without updates: as it is."""
    if update is None or not arm.weights:
        return arm
    return replace(arm, weights=(_weights(update),))


def _weights(update: int) -> str:
    return f"eval.checkpoint=${{run_dir}}/checkpoints/step-{update}"


def train_arms(folder: Path, overrides: Sequence[str], arms: Mapping[str, Arm], timeout: float) -> None:
    """Train SFT and, from it, each arm, where it is not trained. No test question is opened."""
    _train(folder / "sft", [*overrides, *SFT], "usual", timeout)
    for name, arm in arms.items():
        settings = [*overrides, *arm.settings]
        _fork(folder, name, settings, arm.listed)
        _train(folder / name, settings, arm.listed, timeout)


def _play_arms(
    folder: Path, overrides: Sequence[str], arms: Mapping[str, Arm], line: Sequence[int]
) -> dict[str, Sequence[Row]]:
    """Rows of one seed's rules and arms on the questions to play; an arm's after update 8 is "NAME after 8"."""
    rows = _played(folder / "sft", [*overrides, *SFT], OF_SFT)
    for name, arm in arms.items():
        settings = [*overrides, *arm.settings]
        rows[name] = _played(folder / name, [*settings, *arm.weights], (arm.variant,))[arm.variant]
        for update in line if arm.weights else ():
            rows[f"{name}{AFTER}{update}"] = _played(
                folder / name, [*settings, _weights(update)], (arm.variant,), f"-step-{update}"
            )[arm.variant]
    return rows


def numbers(seeds: Sequence[Mapping[str, Sequence[Row]]], draw: dict[str, int]) -> dict[str, Any]:
    """Numbers of all seeds' rows, which are of the same questions.

    "orders": row -> group -> number -> [value, low, high], "n", and accuracy of each seed; "differences": `CONTRASTS`
    whose both sides were played, and those of earlier weights from SFT, column by column, and in how many of all
    answers they are the same.
    """
    from ghar.envs.ghar.orders.numbers import difference_over_seeds, mean_over_seeds
    from ghar.metrics.rows import paired

    orders: dict[str, Any] = {}
    for name in seeds[0]:
        groups = sorted({row["group"] for row in seeds[0][name]})
        parts = {"all": [run[name] for run in seeds]}
        parts |= {group: [[r for r in run[name] if r["group"] == group] for run in seeds] for group in groups}
        orders[name] = {
            group: {"n": len(own[0]), "seeds": [float(np.mean([r["correct"] for r in rows])) for rows in own]}
            | {column: mean_over_seeds(own, column, draw).as_list() for column in COLUMNS}
            for group, own in parts.items()
        }
    differences: dict[str, Any] = {}
    for a, b in (*CONTRASTS, *((name, "ghar_sft") for name in seeds[0] if AFTER in name)):
        if a in seeds[0] and b in seeds[0]:
            one, two = ([run[name] for run in seeds] for name in (a, b))
            differences[f"{a} - {b}"] = {c: difference_over_seeds(one, two, c, draw).as_list() for c in COLUMNS}
            differences[f"{a} - {b}"]["same"] = sum(
                x["prediction"] is not None and x["prediction"] == y["prediction"]
                for i in range(len(seeds))
                for x, y in paired(one[i], two[i])
            )
    return {"orders": orders, "differences": differences}


def with_test(system: System[Any], cases: Sequence[Any]) -> System[Any]:
    """The system with these test cases alone; once it has been made for a model's reader, as that cuts them."""
    chosen = {case.sample_id for case in cases}

    def alone(own: System[Any]) -> System[Any]:
        return replace(own, cases=replace(own.cases, test=tuple(c for c in own.cases.test if c.sample_id in chosen)))

    return system.adapt(alone)


def _draw_of(overrides: Sequence[str]) -> dict[str, int]:
    from ghar.launch.entry import load

    config = load([*overrides])
    return {"seed": config.seed, "resamples": config.eval.bootstrap}


def _settings(run: Path, overrides: Sequence[str], variant: str) -> list[str]:
    # the run's own evaluation would open further test questions
    return [*overrides, "task.max_test=4", f"eval.variants=[{variant}]", f"run_dir={run}"]


def _train(run: Path, overrides: Sequence[str], variant: str, timeout: float) -> None:
    from ghar.launch.entry import load
    from ghar.trainers.runs.resume import finished

    settings = _settings(run, overrides, variant)
    if finished(load(settings)):  # refuses a run of other settings
        return
    command = [sys.executable, str(ROOT / "launch" / "train.py"), *settings]
    print(" ".join(command), flush=True)
    subprocess.run(command, check=True, timeout=timeout)


def _fork(folder: Path, name: str, overrides: Sequence[str], variant: str) -> None:
    from ghar.launch.entry import load
    from ghar.trainers.runs.fork_run import begin_from

    if not (folder / name).exists():
        begin_from(folder / "sft", load(_settings(folder / name, overrides, variant)))


def _played(
    run: Path, overrides: Sequence[str], variants: Sequence[str], weights: str = ""
) -> dict[str, Sequence[Row]]:
    """Rows of each variant on the questions to play. weights: what tells their folder from that of the last weights."""
    from ghar.envs import system as systems
    from ghar.envs.records import Records
    from ghar.launch.entry import load
    from ghar.metrics.runfolder import RunFolder
    from ghar.trainers.evaluation.evaluate import evaluate_system, lean
    from ghar.trainers.runs.models import use_cores

    config = load([*overrides, "task.max_test=null", f"run_dir={run}"])
    config = replace(config, eval=replace(config.eval, variants=tuple(variants)))
    use_cores(config.threads)
    system = systems.build(Records(config))
    played = with_test(system, system.cases.test[OPENED : OPENED + PLAYED])
    folder = RunFolder.open(run / "evaluations" / f"questions-{OPENED + 1}-{OPENED + PLAYED}{weights}")
    evaluate_system(played, config, folder, resume=True)
    return {name: lean(folder, name) for name in variants}
