"""Parts of a report that are counted from episode rows: reliability, decision curves, subgroups, costs, labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ghar.metrics.answers import FEWEST as FEWEST_PATIENTS
from ghar.metrics.bootstrap import mean_interval
from ghar.metrics.calibration import BINS
from ghar.metrics.charts import INK, Line
from ghar.metrics.rows import calls_of, tokens_of
from ghar.metrics.traces import Row

FEWEST = 10  # samples of a subgroup that is shown, and of a bin of a reliability curve
THRESHOLDS = np.arange(1, 100) / 100
RESAMPLES = 200  # of a subgroup's interval; the table's own numbers use eval.bootstrap


@dataclass(eq=False)
class RowCounts:
    """What is kept of each row of a variant while its file is read once.

    shares: label and probabilities of rows that have them; without_shares: labels of the other rows.
    """

    right: list[bool] = field(default_factory=list)
    who: list[Any] = field(default_factory=list)
    groups: list[tuple[str, ...]] = field(default_factory=list)
    labels: Counter[str] = field(default_factory=Counter)
    shares: list[tuple[str, Sequence[float]]] = field(default_factory=list)
    without_shares: list[str] = field(default_factory=list)
    calls: float = 0.0
    tokens: float = 0.0
    seconds: float = 0.0

    def through(self, rows: Iterable[Row]) -> Iterable[Row]:
        """The same rows, counted as they pass."""
        for row in rows:
            self.count(row)
            yield row

    def count(self, row: Row) -> None:
        """Take one row in."""
        self.right.append(bool(row["correct"]))
        self.who.append(row.get("subject_id", row["sample_id"]))
        self.groups.append(groups_of(row))
        self.labels[row["label"]] += 1
        if row.get("label_probabilities") is not None:
            self.shares.append((row["label"], row["label_probabilities"]))
        else:
            self.without_shares.append(row["label"])
        self.calls += calls_of(row)
        self.tokens += tokens_of(row)
        self.seconds += row["seconds"]


def groups_of(row: Row) -> tuple[str, ...]:
    """The parts of the test set that a row is in."""
    needs = row["needs_retrieval"]
    needed = () if needs is None else ("a retrieval was needed" if needs else "no retrieval was needed",)
    count = row.get("look_ups")
    many = () if count is None else (f"needs {count} retrieval{'' if count == 1 else 's'}",)
    patient_groups = (f"{kind} {name}" for kind, name in row.get("groups", {}).items())
    return (f"label {row['label']}", *needed, *many, *patient_groups)


def subgroups(tallies: Mapping[str, RowCounts]) -> dict[str, Any]:
    """{"variants": names, "lines": [(group, samples, (value, interval) or None per variant)]}; empty without groups.
    A group of all samples is no part, and is left out."""
    sizes = Counter(group for tally in tallies.values() for groups in tally.groups for group in groups)
    whole = sum(len(tally.groups) for tally in tallies.values())
    parts = (group for group in sizes if FEWEST * len(tallies) <= sizes[group] < whole)
    order = sorted(parts, key=lambda group: (group.startswith("label"), group))
    lines = []
    for group in order:
        cells = [_accuracy(tally, group) for tally in tallies.values()]
        count = max(sum(group in groups for groups in tally.groups) for tally in tallies.values())
        lines.append((group, f"{count:,}", cells))
    return {"variants": list(tallies), "lines": lines} if lines else {}


def _accuracy(tally: RowCounts, group: str) -> tuple[str, str] | None:
    places = [i for i, groups in enumerate(tally.groups) if group in groups]
    if not places:
        return None
    values, who = [float(tally.right[i]) for i in places], [tally.who[i] for i in places]
    value, low, high = mean_interval(values, patients=who, resamples=RESAMPLES).as_list()
    if len(set(who)) < FEWEST_PATIENTS:
        return f"{value:.3f}", "too few patients"
    return f"{value:.3f}", f"{low:.3f} to {high:.3f}"


def reliability(tallies: Mapping[str, RowCounts], labels: Sequence[str], colors: Mapping[str, str]) -> list[Line]:
    """One curve a variant with label probabilities: how often the most probable label was right, by how probable."""
    lines = []
    for name, tally in tallies.items():
        if not tally.shares:
            continue
        table = np.array([shares for _, shares in tally.shares])
        right = np.array([labels[row.argmax()] == label for row, (label, _) in zip(table, tally.shares, strict=True)])
        top = table.max(axis=1)
        bins = np.searchsorted(np.arange(1, BINS) / BINS, top, side="left")
        kept = [b for b in range(BINS) if (bins == b).sum() >= FEWEST]
        points = [(float(top[bins == b].mean()), float(right[bins == b].mean())) for b in kept]
        if points:
            lines.append(Line(name, [x for x, _ in points], [y for _, y in points], colors[name]))
    return [Line("calibrated", [0.0, 1.0], [0.0, 1.0], INK), *lines] if lines else []


def decision_curve(tallies: Mapping[str, RowCounts], labels: Sequence[str], colors: Mapping[str, str]) -> list[Line]:
    """Net benefit of acting where the second of two labels is at least as probable as a threshold: true positives less
    false positives at the threshold's odds, a sample (Vickers and Elkin 2006). Empty for other than two labels.

    A sample without probabilities gives no reason to act. It counts among the samples of its variant all the same."""
    lines: list[Line] = []
    for name, tally in tallies.items():
        if len(labels) != 2 or not tally.shares:
            continue
        truth, risk = _risks(tally, labels, missing=0.0)
        if not lines:
            everyone = truth.mean() - (1 - truth.mean()) * THRESHOLDS / (1 - THRESHOLDS)
            mask = everyone >= -0.05
            lines.append(Line("act on everyone", THRESHOLDS[mask].tolist(), everyone[mask].tolist(), INK))
        acted = risk[None] >= THRESHOLDS[:, None]
        gained = (acted & truth).mean(axis=1) - (acted & ~truth).mean(axis=1) * THRESHOLDS / (1 - THRESHOLDS)
        lines.append(Line(name, THRESHOLDS.tolist(), gained.tolist(), colors[name]))
    return lines


def roc_curve(tallies: Mapping[str, RowCounts], labels: Sequence[str], colors: Mapping[str, str]) -> list[Line]:
    """Sensitivity over 1 - specificity of every threshold of the second of two labels' probability, a curve a variant;
    the diagonal is chance. Empty for other than two labels, or where one of them never occurs."""
    lines = []
    for name, truth, caught, alarms in _thresholds(tallies, labels):
        negatives = len(truth) - truth.sum()
        lines.append(Line(name, [0.0, *(alarms / negatives)], [0.0, *(caught / truth.sum())], colors[name]))
    return [Line("chance", [0.0, 1.0], [0.0, 1.0], INK), *lines] if lines else []


def precision_recall(tallies: Mapping[str, RowCounts], labels: Sequence[str], colors: Mapping[str, str]) -> list[Line]:
    """Positive predictive value over sensitivity of the same thresholds; the level line is the share of positives,
    which acting on everyone has."""
    lines, share = [], 0.0
    for name, truth, caught, alarms in _thresholds(tallies, labels):
        share = float(truth.mean())
        lines.append(Line(name, list(caught / truth.sum()), list(caught / (caught + alarms)), colors[name]))
    return [Line("act on everyone", [0.0, 1.0], [share, share], INK), *lines] if lines else []


def _thresholds(
    tallies: Mapping[str, RowCounts], labels: Sequence[str]
) -> Iterator[tuple[str, np.ndarray, np.ndarray, np.ndarray]]:
    """(variant, truth, positives caught, false alarms) of each threshold from the highest; equal risks share one. A
    sample without probabilities has 0.5, as for the AUROC and AUPRC of the table."""
    for name, tally in tallies.items():
        if len(labels) != 2 or not tally.shares:
            continue
        truth, risk = _risks(tally, labels, missing=0.5)
        if not 0 < truth.sum() < len(truth):
            continue
        order = np.argsort(-risk, kind="stable")
        last = np.flatnonzero(np.diff(risk[order], append=-np.inf))
        yield name, truth, truth[order].cumsum()[last], (~truth[order]).cumsum()[last]


def _risks(tally: RowCounts, labels: Sequence[str], missing: float) -> tuple[np.ndarray, np.ndarray]:
    """(whether the label is the second one, its probability) of every sample; `missing` where there is none."""
    every = [*((label, shares[1]) for label, shares in tally.shares), *((one, missing) for one in tally.without_shares)]
    return np.array([label == labels[1] for label, _ in every]), np.array([share for _, share in every])


def balance(tally: RowCounts, labels: Sequence[str]) -> list[tuple[str, int, float]]:
    """(label, samples, share) in the order of the task's labels."""
    order = [*labels, *sorted(set(tally.labels) - set(labels))]
    whole = max(tally.labels.total(), 1)
    return [(label, tally.labels[label], tally.labels[label] / whole) for label in order if tally.labels[label]][:24]
