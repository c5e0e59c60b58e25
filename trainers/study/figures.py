"""Figures of a table, one a task: dots with intervals, lines over rows' x, curves over a metric's parameter, groups,
or one metric against another. Each quantity has axes of its own. SVG and PNG of the same drawing."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ghar.metrics.charts import INK, PALETTE, panels
from ghar.trainers.study.metrics import PARAMETERS, title_of
from ghar.trainers.study.schema import Study, StudyTable

DOTS = 150  # per inch, of PNG
WIDE, ACROSS = 7.0, 3  # inches of a page's text, and panels that stand beside each other in it
BESIDE, BOLD = 0.5, 2.2  # of the way between two ticks that lines share; points, of the main line
MARKERS = ("o", "s", "^", "D")  # one more each time the colours are used up
SLANTED: Mapping[str, Any] = {"rotation": 25, "ha": "right", "rotation_mode": "anchor"}
Series = tuple[str, list[float], list[float], list[float], list[float]]  # label, x, value, low, high


def figures_of(study: Study, table: StudyTable, numbers: Mapping[str, Any]) -> dict[str, tuple[str, bytes]]:
    """Task -> SVG and PNG; nothing for a table without a figure, or without a number."""
    if table.draw == "none":
        return {}
    drawn = {}
    for task in dict.fromkeys(column.split("/", 1)[0] for column in numbers["columns"]):
        metrics = [c.split("/", 1)[1] for c in numbers["columns"] if c.startswith(f"{task}/")]
        name = f"{table.title}, {numbers['cohort']}, {task}"
        kind = "groups" if table.by else table.draw
        picture = _DRAWN[kind](study, numbers, task, metrics, name)
        if picture is not None:
            drawn[task] = picture
    return drawn


def _cell(numbers: Mapping[str, Any], row: str, task: str, metric: str, part: str = "all") -> Mapping[str, Any] | None:
    cell = numbers["cells"][row][f"{task}/{metric}"].get(part)
    return None if cell is None or "hole" in cell else cell


def _bars(study: Study, numbers: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    """A panel a metric, a line a row: a dot with its interval."""
    rows = [row for row in numbers["cells"] if any(_cell(numbers, row, task, m) for m in metrics)]
    if not rows:
        return None
    metrics = [metric for metric in metrics if any(_cell(numbers, row, task, metric) for row in rows)]
    titles = [study.row(row).title for row in reversed(rows)]
    with _grid(name, metrics, 0.7 + 0.2 * len(rows)) as (figure, axes, svg):
        for i, (one, metric) in enumerate(zip(axes, metrics, strict=False)):
            points = [(y, cell) for y, row in enumerate(reversed(rows)) if (cell := _cell(numbers, row, task, metric))]
            value, low, high = _columns([cell for _, cell in points])
            one.errorbar(value, [y for y, _ in points], xerr=_whiskers(value, low, high), fmt="o", markersize=4,
                         capsize=2, color=PALETTE[0])  # fmt: skip
            one.set_yticks(range(len(rows)), titles if i % ACROSS == 0 else [""] * len(rows), color=INK)
            one.set(xlabel=title_of(metric), ylim=(-0.6, len(rows) - 0.4))
            one.locator_params(axis="x", nbins=4)
        png = _png(figure)
    return svg[0], png


def _lines(study: Study, numbers: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    """A panel a metric, a line a series over its rows' x."""
    placed = [row for row in numbers["cells"] if study.row(row).x is not None]
    rows = sorted(placed, key=lambda row: study.row(row).x or 0)
    labels = list(dict.fromkeys(study.row(row).series for row in placed))
    drawn: list[tuple[str, list[Series]]] = []
    for metric in metrics:
        series: list[Series] = []
        for label in labels:
            own = [row for row in rows if study.row(row).series == label]
            points = [(study.row(row).x or 0.0, cell) for row in own if (cell := _cell(numbers, row, task, metric))]
            if points:
                series.append((label, [x for x, _ in points], *_columns([cell for _, cell in points])))
        if series:
            drawn.append((title_of(metric), series))
    ticks = sorted({study.row(row).x or 0.0 for row in placed})
    [table] = (table for table in study.tables if table.name == numbers["table"])
    main = study.row(table.main or study.main).series
    beside = [(quantity, _side_by_side(series, ticks)) for quantity, series in drawn]
    return _curve(beside, name, ticks, [f"{tick:g}" for tick in ticks], axis=table.axis, main=main)


def _side_by_side(series: Sequence[Series], ticks: Sequence[float]) -> list[Series]:
    """Lines whose points stand a little beside each tick, so that no interval covers another."""
    gap = min((b - a for a, b in pairwise(ticks)), default=1.0)
    aside = [BESIDE * gap * ((n + 0.5) / len(series) - 0.5) for n in range(len(series))]
    return [
        (label, [x + far for x in places], value, low, high)
        for (label, places, value, low, high), far in zip(series, aside, strict=True)
    ]


def _curves(study: Study, numbers: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    """Lines of rows over the number after @."""
    over = [metric for metric in metrics if "@" in metric]
    series: list[Series] = []
    for row in numbers["cells"]:
        points = [(float(m.partition("@")[2]), cell) for m in over if (cell := _cell(numbers, row, task, m))]
        if points:
            series.append((study.row(row).title, [x for x, _ in points], *_columns([cell for _, cell in points])))
    own = over[0].partition("@")[0] if over else ""
    drawn = [(title_of(own), series)] if series else []
    return _curve(drawn, name, axis=PARAMETERS.get(own, ""), diagonal=own == "observed")


def _groups(study: Study, numbers: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    """A panel a metric, dots of the rows side by side in each group."""
    parts = sorted({part for row in numbers["cells"].values() for part in row[f"{task}/{metrics[0]}"]})
    drawn: list[tuple[str, list[Series]]] = []
    for metric in metrics:
        series: list[Series] = []
        for n, row in enumerate(numbers["cells"]):
            points = [(float(i), c) for i, part in enumerate(parts) if (c := _cell(numbers, row, task, metric, part))]
            aside = 0.5 * ((n + 0.5) / len(numbers["cells"]) - 0.5)
            if points:
                places = [x + aside for x, _ in points]
                series.append((study.row(row).title, places, *_columns([cell for _, cell in points])))
        if series:
            drawn.append((title_of(metric), series))
    return _curve(drawn, name, list(range(len(parts))), parts, line="")


def _scatter(study: Study, numbers: Mapping[str, Any], task: str, metrics: Sequence[str], name: str) -> Any:
    """A panel a metric over the last one, a point a row, named in the legend so that no name covers a point."""
    *several, over = metrics
    points: dict[str, list[tuple[str, float, float]]] = {}
    for metric in several:
        for row in numbers["cells"]:
            y, x = (_cell(numbers, row, task, m) for m in (metric, over))
            if x is not None and y is not None:
                points.setdefault(metric, []).append((study.row(row).title, x["value"], y["value"]))
    if not points:
        return None
    looks: dict[str, tuple[str, str]] = {}
    with _grid(name, list(points), 3.2) as (figure, axes, svg):
        for one, (metric, own) in zip(axes, points.items(), strict=False):
            for label, x, y in own:
                i = len(looks)
                shape, colour = looks.setdefault(label, (MARKERS[i // len(PALETTE)], PALETTE[i % len(PALETTE)]))
                one.plot([x], [y], shape, color=colour, label=label)
            one.set(xlabel=title_of(over), ylabel=title_of(metric))
        named = {label: line for one in axes for line, label in zip(*one.get_legend_handles_labels(), strict=True)}
        figure.legend(named.values(), named.keys(), loc="outside right upper", fontsize=7)
        png = _png(figure)
    return svg[0], png


_DRAWN = {"bars": _bars, "lines": _lines, "curves": _curves, "groups": _groups, "scatter": _scatter}


def _grid(name: str, metrics: Sequence[str], height: float) -> Any:
    """Axes for the metrics, `ACROSS` beside each other; those that stay empty are not drawn."""
    rows = -(-len(metrics) // ACROSS)
    return panels(name, WIDE, height * rows, rows, min(len(metrics), ACROSS), len(metrics))


def _curve(
    drawn: Sequence[tuple[str, Sequence[Series]]],
    name: str,
    at: Sequence[float] = (),
    ticks: Sequence[str] = (),
    line: str = "-",
    axis: str = "",
    main: str = "",
    diagonal: bool = False,
) -> Any:
    """drawn: of each panel the quantity and its lines; a label has one colour and marker in all of them, and stands in
    one legend beside the panels. axis: what lies along x. main: the label whose line is drawn bold. diagonal: where
    both axes have one number."""
    if not drawn:
        return None
    labels = list(dict.fromkeys(label for _, series in drawn for label, *_ in series))
    with _grid(name, [quantity for quantity, _ in drawn], 2.8) as (figure, axes, svg):
        lines: dict[str, Any] = {}
        for one, (quantity, series) in zip(axes, drawn, strict=False):
            for label, x, value, low, high in series:
                i = labels.index(label)
                color, marker = PALETTE[i % len(PALETTE)], MARKERS[i // len(PALETTE)]
                width = BOLD if label == main else 1.0
                [lines[label]] = one.plot(x, value, f"{marker}{line}", markersize=3, color=color, linewidth=width)
                one.errorbar(x, value, yerr=_whiskers(value, low, high), fmt="none", ecolor=color, elinewidth=0.7,
                             capsize=1.5)  # fmt: skip
            if diagonal:
                one.plot([0, 1], [0, 1], ":", color=INK, linewidth=0.7)
            if ticks:
                one.set_xticks(list(at), list(ticks), **(SLANTED if max(map(len, ticks)) > 5 else {}))
            one.set(ylabel=quantity, xlabel=axis)
        figure.legend([lines[label] for label in labels], labels, loc="outside right upper", fontsize=7)
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
