"""The end of an evaluation: summary.json, the table that is printed, and the page."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ghar.envs.system import room
from ghar.errors import BadInput
from ghar.metrics.health import as_json, verdicts
from ghar.metrics.model_size import best_step_in_words, budget_in_words, size_in_words
from ghar.metrics.report import write_report
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportSection, ReportStyle, part_of, samples_of, subjects_of
from ghar.metrics.upper_bounds import base_in_words, in_words
from ghar.progress import TERMINAL_WIDTH
from ghar.trainers.evaluation.leakage import in_words as in_sentences
from ghar.trainers.evaluation.leakage import section

COLUMNS = ("accuracy", "macro_f1", "f1", "auroc", "reward", "retrieval_rate", "iterations", "tokens")
COLUMN = 25  # of a number with its interval, and a space


def conclude(folder: RunFolder, results: Mapping[str, Any]) -> dict[str, Any]:
    """Put the `results` of an evaluation into summary.json, print it and write the page.

    Returns the whole summary; what else a training had written into it stays.
    """
    summary = {**(folder.summary() or {}), **results}
    judged = verdicts(summary, folder.metrics(), summary.get("main"))
    summary["verdicts"] = as_json(judged)
    folder.write_summary(summary)
    print(table(summary))
    print(f"Report: {report(folder.path)}")
    return summary


def report(path: Path) -> Path:
    """Write report.html of a run folder, with the sections of the system that its summary names."""
    folder = RunFolder(path)
    summary = folder.summary() or {}
    titles = summary.get("titles") or {}
    learns = any(row["phase"] == "rl" for row in folder.metrics())
    parts = (*sections(folder, summary), *section(summary))
    look = ReportStyle(titles, summary.get("main"), learns, parts, before=summary.get("before"))
    return write_report(path, look)


def sections(folder: RunFolder, summary: Mapping[str, Any]) -> Sequence[ReportSection]:
    """What the system's room adds to a page; nothing where it has no report.py."""
    name = summary.get("system")
    if name is None:
        return ()
    try:
        return getattr(room(str(name), "sections"), "sections", lambda *_: ())(folder, summary)
    except BadInput:  # the run of a user's own system, read where that module is not at hand
        return ()


def table(summary: Mapping[str, Any]) -> str:
    """The variants' main numbers as text, at most as wide as a terminal."""
    policies = summary["policies"]
    own = dict.fromkeys(name for numbers in policies.values() for name in numbers.get("own_metrics") or ())
    columns = [name for name in (*own, *COLUMNS) if any(name in numbers for numbers in policies.values())]
    first = max(len(name) for name in policies) + 2
    fitting = max(1, (TERMINAL_WIDTH - first) // COLUMN)
    lines = []
    for start in range(0, len(columns), fitting):
        some = columns[start : start + fitting]
        lines.append(f"{'variant':{first}}" + "".join(f"{name:>{COLUMN}}" for name in some))
        for name, numbers in policies.items():
            lines.append(f"{name:{first}}" + "".join(f"{cell(numbers.get(c)):>{COLUMN}}" for c in some))
    lines += [
        f"{name}: unreadable replies: {', '.join(f'{error} {n}' for error, n in numbers['errors'].items())}"
        for name, numbers in policies.items()
        if numbers.get("errors")
    ]
    prose = [f"model: {sentence}" for sentence in (size_in_words(summary),) if sentence]
    prose += [f"trained on {sentence}" for sentence in (budget_in_words(summary),) if sentence]
    prose += [f"best validation loss: {sentence}" for sentence in (best_step_in_words(summary),) if sentence]
    prose += [sentence for sentence in (base_in_words(summary),) if sentence]
    prose += [f"ceiling on accuracy: {ceiling}" for ceiling in in_words(summary)]
    prose += in_sentences(summary)
    for state in ("bad", "doubtful"):
        state_verdicts = [v for v in summary.get("verdicts") or () if v["state"] == state]
        prose += [f"{state}: {v['about']}: {v['sentence']}" for v in state_verdicts]
    if part_of(summary) != "test":
        subjects = subjects_of(samples_of(summary))
        prose.append(
            f"These are validation {subjects}: settings may have been chosen on them, so this is no test result."
        )
    if summary["generated"]:
        prose.append("These patients are generated; the numbers say nothing about real ones.")
    lines += [part for text in prose for part in textwrap.wrap(text, TERMINAL_WIDTH, subsequent_indent="  ")]
    return "\n".join(lines)


def cell(interval: Sequence[float | None] | None) -> str:
    """A number with its interval."""
    if interval is None or interval[0] is None:
        return "-"
    if None in interval:
        return "too few"
    return "{:.3f} [{:.3f}, {:.3f}]".format(*interval)
