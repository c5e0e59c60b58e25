"""The paper's table of a data set: patients, visits, codes per visit, and the labels of each task (GHAR, Table III);
and of one task's drawn samples the same by split (KARE, Table 1; GraphWalker, Table 5).

"codes shown" counts, as the paper's "history per visit" does, all codes of the visits a sample shows, averaged over the
samples of the length-of-stay task, which excludes least; "codes per visit" counts those of one visit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from ghar.data.audit import exposure
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.tasks.samples import TimeSeries
from ghar.data.tasks.splits import Splits
from ghar.data.visit_codes import KIND_NAMES

Table = dict[str, Any]


def dataset_table(cohort: Cohort, tasks: Mapping[str, tuple[Task, Sequence[Sample]]]) -> Table:
    """Everything the text shows, as plain values: patients, visits, codes by kind, tasks, and the reader's counts."""
    visits = cohort.visits
    people = cohort.scan().select(pl.col("subject_id").n_unique()).collect(engine="streaming").item()
    uses = {k: [code for v in cohort.shown.visits.values() for code in getattr(v, k)] for k in KIND_NAMES}
    averages = _average_codes(tasks["los"][1]) if "los" in tasks else {}
    return {
        "name": cohort.name,
        "generated": cohort.generated,
        "patients": people,
        "patients with a visit": visits["subject_id"].n_unique(),
        "visits": visits.height,
        "visits per patient": visits.height / max(visits["subject_id"].n_unique(), 1),
        "events": cohort.scan().select(pl.len()).collect().item(),
        "codes": {
            kind: {
                "different": len(set(uses[kind])),
                "per visit": len(uses[kind]) / max(visits.height, 1),
                "shown": averages.get(kind),
            }
            for kind in KIND_NAMES
        },
        "tasks": {name: task_row(cohort, task, samples) for name, (task, samples) in tasks.items()},
        "counts": dict(cohort.counts),
    }


def task_row(cohort: Cohort, task: Task, samples: Sequence[Sample]) -> Table:
    """Question, samples, patients, labels, visits shown, and how many codes are shown before they were recorded."""
    labels, leakage = Counter(sample.label for sample in samples), exposure(cohort, samples)
    return {
        "question": task.question,
        "samples": len(samples),
        "patients": len({sample.subject_id for sample in samples}),
        "visits shown": sum(len(sample.history) for sample in samples) / max(len(samples), 1),
        "labels": {label: labels[i] for i, label in enumerate(task.labels)},
        "codes shown too early": leakage.late,
        "leak score": leakage.score,
    }


def label_row(about: Task, labels: pl.DataFrame, left_out: Mapping[str, int] | None = None) -> Table:
    """Question, samples, patients and label balance from labels alone (subject_id, label), and what is left out."""
    counts = dict(labels.group_by("label").len().rows())
    return {
        "question": about.question,
        "samples": labels.height,
        "patients": labels["subject_id"].n_unique(),
        "labels": {label: counts.get(i, 0) for i, label in enumerate(about.labels)},
        "left out": dict(left_out or {}),
    }


def split_table(task: Task, splits: Splits[Any]) -> Table:
    """Each split's row, "pool" where there is one: whole, and of each label under "labels"."""
    parts = {"train": splits.train, "valid": splits.valid, "test": splits.test, "pool": splits.pool}
    return {name: _split_row(task, samples) for name, samples in parts.items() if samples}


def _split_row(task: Task, samples: Sequence[Any]) -> Table:
    """samples: of visits, time series, texts or cases; the latter two show nothing that is counted. Tasks whose samples
    have answers of their own have no labels."""
    own = {label: [s for s in samples if s.label == i] for i, label in enumerate(task.labels)}
    return _sizes(samples) | {"labels": {label: _sizes(some) for label, some in own.items()}}


def _sizes(samples: Sequence[Any]) -> Table:
    """Samples, patients, and what samples show together."""
    counts = Counter[str]()
    for sample in samples:
        counts.update(_shows(getattr(sample, "history", None)))
    people = len({sample.subject_id for sample in samples})
    return {"samples": len(samples), "patients": people, "shown": dict(counts)}


def _shows(history: object) -> dict[str, int]:
    """How many visits and codes, or steps of a series, one sample shows."""
    if isinstance(history, TimeSeries):
        return {"steps": len(history.hours)}
    if not isinstance(history, tuple):
        return {}
    codes = {kind: sum(len(getattr(visit, kind)) for visit in history) for kind in KIND_NAMES}
    return {"visits": len(history), **codes}


def split_text(task: Task, table: Table) -> str:
    """The splits' rows for reading, in means a sample."""
    lines = [f"drawn for {task.name}, by split"]
    for name, row in table.items():
        lines.append(f"  {name:<6} {_sizes_text(row)}")
        for label, own in row["labels"].items():
            lines.append(f"    {label} ({own['samples'] / row['samples']:.1%}): {_sizes_text(own)}")
    return "\n".join(lines)


def _sizes_text(row: Table) -> str:
    samples = max(row["samples"], 1)
    averages = "".join(f"   {what} per sample {n / samples:.2f}" for what, n in row["shown"].items())
    return f"samples {row['samples']:,}   patients {row['patients']:,}{averages}"


def text(table: Table) -> str:
    """The table for reading."""
    lines = [f"{table['name']}{' (generated patients)' if table['generated'] else ''}"]
    lines.append(f"  patients {table['patients']:,}   visits {table['visits']:,}   events {table['events']:,}")
    if without := table["patients"] - table["patients with a visit"]:
        lines.append(f"  {without:,} patients have events and no visit, so that no task of visits asks about them")
    lines.append(f"  visits per patient {table['visits per patient']:.2f}")
    for kind, row in table["codes"].items():
        average = "" if row["shown"] is None else f"   shown per sample (los) {row['shown']:.2f}"
        lines.append(f"  {kind:<12} different {row['different']:>7,}   per visit {row['per visit']:.2f}{average}")
    for name, row in table["tasks"].items():
        total = max(row["samples"], 1)
        balance = "  ".join(f"{label}: {n:,} ({n / total:.1%})" for label, n in row["labels"].items())
        lines.append(f"  task {name}: {row['samples']:,} samples of {row['patients']:,} patients")
        lines.append(f"    {row['question']}")
        if "visits shown" in row:
            lines.append(
                f"    visits shown per sample {row['visits shown']:.2f}   codes shown before they were recorded "
                f"{row['codes shown too early']:,}   leak score "
                f"{'unknown' if row['leak score'] is None else format(row['leak score'], '.2f')}"
            )
        if row.get("left out"):
            lines.append(f"    left out: {', '.join(f'{rule} {n:,}' for rule, n in row['left out'].items())}")
        lines.append(f"    {balance}")
    rules = {rule: n for rule, n in table["counts"].items() if not rule.startswith("rows.") and n}
    lines += ["  repaired, dropped, added or absent in the tables (what.table.rule: how many)"] if rules else []
    lines += [f"    {rule}: {n:,}" for rule, n in rules.items()]
    return "\n".join(lines)


def _average_codes(samples: Sequence[Sample]) -> dict[str, float]:
    """Codes a sample shows on average, by kind."""
    return {
        kind: sum(len(getattr(visit, kind)) for sample in samples for visit in sample.history) / max(len(samples), 1)
        for kind in KIND_NAMES
    }
