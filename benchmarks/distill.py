"""What distillation brings: KARE's model against models that learn less (benchmarks/run.py distill).

For the same test patients of the demo world:

kare          distilled on chains that end with the label, shown KARE's whole context (record, similar patients,
              communities)
backbone      the base model before that, asked in the same way
label_only    the same base, fine-tuned on labels alone in the same context
plain         the same without communities ("Fine-tuned, Backbone" of Table 2)
rule          no model: reads the same context, cut by the model's tokenizer, and knows what is common
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

from benchmarks.learning import t_interval

ROOT = Path(__file__).resolve().parents[1]
DEMO = "+experiment=kare_demo"
KARE = ("eval.variants=[kare,label_only,kare_base,scripted]",)
NAMES = {"kare": "kare", "label_only": "label_only", "backbone": "kare_base", "rule": "scripted"}  # variant of each
PLAIN = ("eval.variants=[no_reasoning]", "system.tasks=label_only", "system.tokens=1")  # no community fits in one token
METRICS = ("accuracy", "macro_f1")


def distill(folder: Path, seeds: int, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Train under seeds 0..seeds-1; test metrics with 95% t-intervals over seeds."""
    runs = [_run(folder, seed, overrides, timeout) for seed in range(seeds)]
    result: dict[str, Any] = {"test patients": runs[0]["kare"]["n"], "seeds": runs}
    for metric in METRICS:
        values = {name: [run[name][metric][0] for run in runs] for name in (*NAMES, "plain", "majority")}
        gains = {
            f"kare - {name}": [kare - other for kare, other in zip(values["kare"], values[name], strict=True)]
            for name in ("label_only", "rule")
        }
        result[metric] = {name: t_interval(numbers) for name, numbers in (values | gains).items()}
    result["kare above label_only, every seed"] = {
        metric: all(run["kare"][metric][0] > run["label_only"][metric][0] for run in runs) for metric in METRICS
    }
    return result


def _run(folder: Path, seed: int, overrides: Sequence[str], timeout: float) -> dict[str, Any]:
    """Both trainings of a seed, and what each model answers. Seconds are of this machine."""
    result: dict[str, Any] = {"seed": seed}
    for name, own in (("kare", KARE), ("plain", PLAIN)):
        run_dir = folder / f"{name}-seed{seed}"
        settings = [DEMO, f"seed={seed}", *overrides, *own, f"run_dir={run_dir}"]
        command = [sys.executable, str(ROOT / "launch" / "train.py"), *settings]
        print(" ".join(command), flush=True)
        subprocess.run(command, check=True, timeout=timeout)
        summary = json.loads((run_dir / "summary.json").read_text())
        answers = {of: _numbers(numbers) for of, numbers in summary["policies"].items()}
        if name == "kare":
            result |= {who: answers[variant] for who, variant in NAMES.items()} | {"majority": _majority(settings)}
        else:
            result[name] = answers["no_reasoning"]
        result[f"seconds, {name}"] = sum(summary["time"].values())
    return result


def _numbers(numbers: dict[str, Any]) -> dict[str, Any]:
    return {name: numbers[name] for name in (*METRICS, "n")}


def _majority(settings: Sequence[str]) -> dict[str, Any]:
    """What a guess is worth, with bootstrap intervals over patients."""
    from ghar.envs.records import Records
    from ghar.launch.entry import load
    from ghar.metrics.scores import classification

    records = Records(load(settings))
    config, splits = records.config, records.splits
    usual = Counter(sample.label for sample in splits.train).most_common(1)[0][0]
    truth = [sample.label for sample in splits.test]
    draws, guesses = config.eval.bootstrap, [usual] * len(truth)
    patients, labels = [sample.subject_id for sample in splits.test], len(records.task.labels)
    scores = classification(truth, guesses, labels, patients=patients, seed=config.seed, resamples=draws)
    return {name: scores[name].as_list() for name in METRICS}
