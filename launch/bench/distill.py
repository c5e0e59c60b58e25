"""What distillation brings: KARE's model against the backbone it was made from (launch/benchmark.py distill).

All answer by choosing one of the labels, for the same test patients of the demo world:

backbone      the demo's base model, shown KARE's whole context (record, similar patients, communities)
plain         the same, fine-tuned on labels alone without communities ("Fine-tuned, Backbone" of Table 2)
kare          distilled on chains and labels, shown KARE's whole context
majority      no model: always the label that most training patients have
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.bench.learning import t_interval

ROOT = Path(__file__).resolve().parents[2]
DEMO = "+experiment=kare_demo"
PLAIN = ("kare.tasks=label_only", "kare.tokens=1")  # no community fits into one token
METRICS = ("accuracy", "macro_f1", "sensitivity", "specificity")


def distill(folder: Path, seeds: int, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Train under seeds 0..seeds-1; test metrics with 95% t-intervals over seeds."""
    runs = [_run(folder, seed, overrides, timeout) for seed in range(seeds)]
    result: dict[str, Any] = {"test patients": runs[0]["kare"]["n"], "seeds": runs}
    for metric in METRICS:
        values = {name: [run[name][metric][0] for run in runs] for name in ("backbone", "plain", "kare", "majority")}
        gains = [kare - backbone for kare, backbone in zip(values["kare"], values["backbone"], strict=True)]
        result[metric] = {name: t_interval(found) for name, found in (values | {"kare - backbone": gains}).items()}
    result["kare above backbone, every seed"] = {
        metric: all(run["kare"][metric][0] > run["backbone"][metric][0] for run in runs) for metric in METRICS[:2]
    }
    return result


def _run(folder: Path, seed: int, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Both trainings of a seed, and what each model answers. Seconds are of this machine."""
    from launch.entry import load
    from trainers.kare import Method
    from trainers.kare_study import prepare

    found: dict[str, Any] = {"seed": seed}
    for name, own in (("kare", ()), ("plain", PLAIN)):
        settings = [DEMO, "kare.methods=[no_reasoning]", f"seed={seed}", *overrides, *own]
        settings += [f"run_dir={folder / f'{name}-seed{seed}'}"]
        command = [sys.executable, str(ROOT / "launch" / "train_kare.py"), *settings]
        print(" ".join(command), flush=True)
        subprocess.run(command, check=True, timeout=timeout)
        study = prepare(load(settings))
        looks_up = "communities" if name == "kare" else "nothing"
        found[name] = _answers(study, Method(looks_up, True, "none", "distilled"))
        if name == "kare":
            found["backbone"] = _answers(study, Method("communities", True, "none", "backbone"))
            found["majority"] = _majority(study)
        summary = json.loads((folder / f"{name}-seed{seed}" / "summary.json").read_text())
        found[f"seconds, {name}"] = sum(summary["time"].values())
    return found


def _majority(study: Any) -> dict[str, Any]:
    """What a guess is worth, with bootstrap intervals over patients."""
    from ghar.metrics.scores import classification

    config, records = study.config, study.records
    usual = Counter(sample.label for sample in records.splits.train).most_common(1)[0][0]
    truth = [sample.label for sample in records.splits.test]
    draws, guesses = config.eval.bootstrap, [usual] * len(truth)
    found = classification(truth, guesses, len(records.task.labels), seed=config.seed, resamples=draws)
    return {name: found[name].as_list() for name in METRICS}


def _answers(study: Any, method: Any) -> dict[str, Any]:
    """Metrics of one model on the test patients, with bootstrap intervals over patients."""
    from ghar.llm.policy import EnginePolicy
    from trainers.kare import play_cases
    from trainers.kare_model import language_model
    from trainers.kare_rows import kare_row, method_summary

    with language_model(study, distilled=method.who == "distilled") as (engine, count):
        cases = study.cases(study.records.splits.test, count)
        played = play_cases(study, cases, method, EnginePolicy(engine, temperature=0), count, title=method.who)
    rows = [
        kare_row(case, episode, method.who, 1.0, study.graph.index) for case, episode in zip(cases, played, strict=True)
    ]
    found = method_summary(rows, study.records.task.labels, study.config)
    return {name: found[name] for name in (*METRICS, "n")}
