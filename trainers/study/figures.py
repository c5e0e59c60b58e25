"""Figures of a table, one a task: dots with intervals, lines over rows' x, curves over a metric's parameter, groups,
or one metric against another. SVG and PNG of the same drawing."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from ghar.metrics.charts import INK, PALETTE, drawing
from ghar.trainers.study.metrics import title_of
from ghar.trainers.study.schema import Study, StudyTable

DOTS = 150  # per inch, of PNG
Series = tuple[str, list[float], list[float], list[float], list[float]]  # label, x, value, low, high


def figures_of(study: Study, table: StudyTable, found: Mapping[str, Any]) -> dict[str, tuple[str, bytes]]:
    """Task -> SVG and PNG; nothing for a table without a figure, or without a number."""
    if table.draw == "none":
        return {}
    drawn = {}
    for task in dict.fromkeys(column.split("/", 1)[0] for column in found["columns"]):
        metrics = [c.split("/", 1)[1] for c in found["columns"] if c.startswith(f"{task}/")]
        name = f"{table.title}, {found['cohort']}, {task}"
        kind = "groups" if table.by else table.draw
        picture = _DRAWN[kind](study, found, task, metrics, name)
        if picture is not None:
            drawn[task] = picture
    return drawn


def _cell(found: Mapping[str, Any], row: str, task: str, metric: str, part: str = "all") -> Mapping[str, Any] | None:
    cell = found["cells"][row][f"{task}/{metric}"].get(part)
    return None if cell is None or "hole" in cell else cell


def _bars(study: Study, found: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    rows = [row for row in found["cells"] if any(_cell(found, row, task, m) for m in metrics)]
    if not rows:
        return None
    spread = 0.6 / max(1, len(metrics))
    series: list[Series] = []
    for i, metric in enumerate(metrics):
        points = [(y, _cell(found, row, task, metric)) for y, row in enumerate(reversed(rows))]
        known = [(y + (len(metrics) / 2 - i - 0.5) * spread, cell) for y, cell in points if cell is not None]
        series.append((title_of(metric), [y for y, _ in known], *_columns([cell for _, cell in known])))
    titles = [study.row(row).title for row in reversed(rows)]
    with drawing(name, height=0.9 + 0.3 * len(rows)) as (figure, axes, svg):
        for i, (label, y, value, low, high) in enumerate(series):
            axes.errorbar(value, y, xerr=_whiskers(value, low, high), fmt="o", markersize=4, capsize=2,
                          color=PALETTE[i % len(PALETTE)], label=label)  # fmt: skip
        axes.set_yticks(range(len(rows)), titles, color=INK)
        axes.set(xlabel=task, ylim=(-0.6, len(rows) - 0.4))
        axes.legend(loc="best", fontsize=7)
        png = _png(figure)
    return svg[0], png


def _lines(study: Study, found: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    placed = [row for row in found["cells"] if study.row(row).x is not None]
    rows = sorted(placed, key=lambda row: study.row(row).x or 0)
    series: list[Series] = []
    for metric in metrics:
        known = [(study.row(row).x or 0.0, cell) for row in rows if (cell := _cell(found, row, task, metric))]
        if known:
            series.append((title_of(metric), [x for x, _ in known], *_columns([cell for _, cell in known])))
    return _curve(series, name, task)


def _curves(study: Study, found: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    """Lines of rows over the number after @."""
    over = [metric for metric in metrics if "@" in metric]
    series: list[Series] = []
    for row in found["cells"]:
        known = [(float(m.partition("@")[2]), cell) for m in over if (cell := _cell(found, row, task, m))]
        if known:
            series.append((study.row(row).title, [x for x, _ in known], *_columns([cell for _, cell in known])))
    return _curve(series, name, title_of(over[0].partition("@")[0]) if over else task)


def _groups(study: Study, found: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    """Lines of rows over the groups, of the first metric."""
    parts = sorted({part for row in found["cells"].values() for part in row[f"{task}/{metrics[0]}"]})
    series: list[Series] = []
    for row in found["cells"]:
        known = [(float(i), c) for i, part in enumerate(parts) if (c := _cell(found, row, task, metrics[0], part))]
        if known:
            series.append((study.row(row).title, [x for x, _ in known], *_columns([cell for _, cell in known])))
    return _curve(series, name, title_of(metrics[0]), parts)


def _scatter(study: Study, found: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    """The first metric over the second, a point a row."""
    points = []
    for row in found["cells"]:
        y, x = (_cell(found, row, task, metric) for metric in metrics[:2])
        if x is not None and y is not None:
            points.append((study.row(row).title, x["value"], y["value"]))
    if not points:
        return None
    with drawing(name, height=3.2) as (figure, axes, svg):
        for i, (label, x, y) in enumerate(points):
            axes.plot([x], [y], "o", color=PALETTE[i % len(PALETTE)])
            axes.annotate(label, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
        axes.set(xlabel=title_of(metrics[1]), ylabel=title_of(metrics[0]))
        png = _png(figure)
    return svg[0], png


_DRAWN = {"bars": _bars, "lines": _lines, "curves": _curves, "groups": _groups, "scatter": _scatter}


def _curve(series: Sequence[Series], name: str, y_label: str, ticks: Sequence[str] = ()) -> Any:
    if not series:
        return None
    with drawing(name, height=3.2) as (figure, axes, svg):
        for i, (label, x, value, low, high) in enumerate(series):
            color = PALETTE[i % len(PALETTE)]
            axes.plot(x, value, "o-", markersize=3, color=color, label=label)
            axes.fill_between(x, low, high, color=color, alpha=0.12, linewidth=0)
        if ticks:
            axes.set_xticks(range(len(ticks)), list(ticks))
        axes.set(ylabel=y_label)
        axes.legend(loc="best", fontsize=6.5)
        png = _png(figure)
    return svg[0], png


def _columns(cells: Sequence[Mapping[str, Any]]) -> tuple[list[float], list[float], list[float]]:
    value, low, high = ([float(cell[key]) for cell in cells] for key in ("value", "low", "high"))
    return value, low, high


def _whiskers(value: list[float], low: list[float], high: list[float]) -> list[list[float]]:
    """Lengths below and above; a percentile interval may leave its own number out."""
    return [[max(0.0, v - a) for v, a in zip(value, low, strict=True)],
            [max(0.0, b - v) for v, b in zip(value, high, strict=True)]]  # fmt: skip


def _png(figure: Any) -> bytes:
    out = io.BytesIO()
    figure.savefig(out, format="png", dpi=DOTS, metadata={"Software": None})
    return out.getvalue()
