"""One page of several runs: which configuration differs, their numbers side by side, and means over seeds.

Runs whose configurations are the same but for the seed and the folder are one group; a group of two or more has a row
of its own, with an interval that covers seeds and patients (ghar.metrics.seeds).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ghar.errors import BadInput
from ghar.metrics.charts import PALETTE, Dot, Line, dot_chart, line_chart
from ghar.metrics.curves import evaluation
from ghar.metrics.health import HealthVerdict, verdicts
from ghar.metrics.runfolder import RunFolder, write_whole
from ghar.metrics.seeds import seeds_and_patients
from ghar.metrics.style import ACCURACY, metric_of, metric_title, pages, samples_of, subjects_of
from ghar.sections import leaves

FREE = ("seed", "run_dir", "threads", "resume", "plan", "keep_last", "data.cache")  # of seeds of one configuration
CLASSES = {"accuracy": "Accuracy", "macro_f1": "Macro-F1", "auroc": "AUROC"}
COSTS = {"reward": "Reward", "tokens": "Tokens"}
RESAMPLES = 1000


@dataclass(frozen=True, eq=False)
class RunSummary:
    """A run as the page shows it. main: the variant that the run is about."""

    folder: RunFolder
    summary: Mapping[str, Any]
    config: Mapping[str, Any]
    main: str
    health: Sequence[HealthVerdict]

    @property
    def name(self) -> str:
        return self.folder.path.resolve().name

    @property
    def title(self) -> str:
        """What the main variant is shown as."""
        return (self.summary.get("titles") or {}).get(self.main, self.main)

    @property
    def metric(self) -> str:
        """The key of its main number."""
        return metric_of(self.summary)

    @property
    def numbers(self) -> Mapping[str, Any]:
        return self.summary["policies"][self.main]


def write_several(folders: Sequence[Path], target: Path, kept: Callable[[Path], Mapping[str, Any] | None]) -> Path:
    """Write the page and return its path. BadInput for a folder that holds no finished run.

    kept: the configuration of a run's folder under today's keys, None where it has none.
    """
    runs = [_read(folder, kept(folder) or {}) for folder in folders]
    differing = _differing(runs)
    grouped = _groups(runs)
    metric = runs[0].metric if len({run.metric for run in runs}) == 1 else ACCURACY
    columns = _columns(runs, metric)
    content = {
        "runs": runs,
        "columns": columns,
        "cells": [[_cell(run.numbers.get(key)) for key in columns] for run in runs],
        "differing": [(key, [str(run.config.get(key)) for run in runs]) for key in differing],
        "groups": [_over_seeds(group, metric) for group in grouped if len(group) > 1],
        "metric": _title(metric),
        "subjects": _subjects(runs),
        "charts": _charts(runs, metric),
        "generated": all(run.summary.get("generated") for run in runs),
        "alike": len({(run.summary.get("task") or {}).get("name") for run in runs}) == 1,
    }
    html = pages("ghar.metrics", "templates").get_template("several.html").render(content)
    write_whole(target, html.encode("utf-8", "replace").decode())
    return target


def _read(path: Path, config: Mapping[str, Any]) -> RunSummary:
    folder = RunFolder(path)
    summary = folder.summary()
    if not summary or not summary.get("policies"):
        raise BadInput(f"{path} holds no summary.json with results: train or evaluate it first.")
    policies = summary["policies"]
    wanted = summary.get("main")
    main = wanted if isinstance(wanted, str) and wanted in policies else next(iter(policies))
    return RunSummary(folder, summary, leaves(config), main, verdicts(summary, folder.metrics(), main))


def _differing(runs: Sequence[RunSummary]) -> list[str]:
    """Keys that are not the same in all runs, and that numbers may depend on."""
    keys = dict.fromkeys(key for run in runs for key in run.config if key == "seed" or key not in FREE)
    return [key for key in keys if len({str(run.config.get(key)) for run in runs}) > 1]


def _groups(runs: Sequence[RunSummary]) -> list[list[RunSummary]]:
    """Runs that differ by their seed alone, together; of several of one seed the first, as others are copies."""
    groups: dict[str, dict[str, RunSummary]] = {}
    for run in runs:
        own = {key: value for key, value in run.config.items() if key not in FREE}
        group = groups.setdefault(str((run.main, sorted(own.items(), key=str))), {})
        group.setdefault(str(run.config.get("seed", run.name)), run)
    return [list(group.values()) for group in groups.values()]


def _score(row: Mapping[str, Any], metric: str) -> float:
    return float(row["correct"] if metric == ACCURACY else row["likeness"][metric])


def _columns(runs: Sequence[RunSummary], metric: str) -> dict[str, str]:
    """{number: title}: of classes, or with another main metric this one, the systems' own ones and accuracy."""
    if metric == ACCURACY:
        return CLASSES | COSTS
    own = (name for run in runs for name in run.numbers.get("own_metrics") or ())
    return {name: _title(name) for name in dict.fromkeys((metric, *own, ACCURACY))} | COSTS


def _subjects(runs: Sequence[RunSummary]) -> str:
    """Whom intervals draw."""
    return " or ".join(dict.fromkeys(subjects_of(samples_of(run.summary)) for run in runs))


def _title(metric: str) -> str:
    """A metric at the head of a column."""
    return CLASSES.get(metric) or metric_title(metric)


def _over_seeds(group: Sequence[RunSummary], metric: str) -> tuple[str, int, str]:
    """(names, seeds, the main metric with its interval over seeds and patients)."""
    rows = [list(run.folder.episodes(run.main)) for run in group]
    right = [[_score(row, metric) for row in some] for some in rows]
    who = [[row.get("subject_id", row["sample_id"]) for row in some] for some in rows]
    interval = seeds_and_patients(right, who, resamples=RESAMPLES)
    seeds = len({run.config.get("seed") for run in group})
    return ", ".join(run.name for run in group), seeds, _text(interval.as_list())


def _charts(runs: Sequence[RunSummary], metric: str) -> list[tuple[str, str]]:
    """The main metric of every run, and their learning curves in one picture."""
    title, subjects = _title(metric), _subjects(runs)
    word = title.lower() if metric == ACCURACY else title
    colors = [PALETTE[i % len(PALETTE)] for i in range(len(runs))]
    scored = [(run, color) for run, color in zip(runs, colors, strict=True) if _cell(run.numbers.get(metric))]
    dots = [Dot(run.name, *run.numbers[metric], color=color) for run, color in scored]
    charts = [(f"{title} on the test {subjects}", dot_chart(title, dots, x_label=word))] if dots else []
    lines = []
    for run, color in zip(runs, colors, strict=True):
        for line in evaluation(run.folder.metrics(), {metric: word}):
            lines.append(Line(run.name, line.x, line.y, color))
    if lines:
        drawn = line_chart(f"Validation {word}", lines, x_label="PPO update", y_label=word)
        charts.append((f"Validation {word}", drawn))
    return charts


def _cell(interval: object) -> str:
    if not isinstance(interval, list) or interval[0] is None:
        return ""
    return "too few" if None in interval else _text(interval)


def _text(interval: Sequence[float]) -> str:
    value, low, high = interval
    return f"{value:,.3f} [{low:,.3f}, {high:,.3f}]" if abs(value) < 100 else f"{value:,.0f} [{low:,.0f}, {high:,.0f}]"
