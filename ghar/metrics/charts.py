"""Charts as inline SVG: lines over training, and one dot with its interval per policy. A pointer over a point shows
its numbers.

Text stays text (the page's font, selectable, readable aloud), every chart carries its own ids, and the same data
give the same bytes. matplotlib is imported when the first chart is drawn.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, QUIET, GRID = "#1f2933", "#52606d", "#e4e7eb"
# Told apart by readers with any colour vision (after Okabe and Ito, darkened for white paper).
PALETTE = ("#0b5cad", "#b45309", "#0f766e", "#9d174d", "#5b21b6", "#4d7c0f", "#475569", "#a16207",
           "#dc2626", "#0891b2", "#a21caf", "#78350f")  # fmt: skip
CLEAR = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}  # behind a name that another line may cross
_WIDTH = 5.0
_POINT = 72  # of an inch: the unit of an SVG of matplotlib
_REACH = 7  # points around a value in which a pointer finds it
_STYLE = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 8.5,
    "text.color": INK,
    "axes.labelcolor": QUIET,
    "axes.edgecolor": "#9aa5b1",
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


@dataclass(frozen=True)
class Line:
    """One curve; `low` and `high` shade its interval where given; `mark_first` rings its first point (update 0)."""

    label: str
    x: Sequence[float]
    y: Sequence[float]
    color: str
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    mark_first: str = ""


@dataclass(frozen=True)
class Level:
    """A horizontal (lines) or vertical (dots) reference, such as a ceiling."""

    label: str
    value: float


@dataclass(frozen=True)
class Dot:
    """A number with its interval, in a row of its own."""

    label: str
    value: float
    low: float
    high: float
    color: str


def line_chart(name: str, lines: Sequence[Line], *, x_label: str, y_label: str, levels: Sequence[Level] = ()) -> str:
    """SVG of curves over `x_label`. name: what the chart shows, for screen readers; unique on the page."""
    with drawing(name, height=2.9) as (figure, axes, svg):
        for line in lines:
            dots = "o" if len(line.x) <= 30 else ""
            hover(axes, zip(line.x, line.y, strict=True), f"{line.label}, {x_label}")
            axes.plot(line.x, line.y, color=line.color, label=line.label, linewidth=1.6, marker=dots, markersize=3)
            if line.low:
                axes.fill_between(line.x, line.low, line.high, color=line.color, alpha=0.14, linewidth=0)
            if line.mark_first:
                _ring(axes, line)
        for i, level in enumerate(levels):  # their names side by side, since levels may lie close to each other
            axes.axhline(level.value, color=QUIET, linewidth=1.1, linestyle=(0, (5, 3)))
            axes.annotate(level.label, (1 - i / len(levels), level.value), xycoords=("axes fraction", "data"),
                          xytext=(0, 3), textcoords="offset points", ha="right", color=QUIET, fontsize=7.5,
                          bbox=CLEAR)  # fmt: skip
        if levels:
            axes.margins(y=0.12)
        axes.set(xlabel=x_label, ylabel=y_label)
        if len(lines) > 1:
            longest = max(len(line.label) for line in lines)
            fitting = int(_WIDTH * _POINT // (longest * 4 + 24))  # a letter of that size is some 4 points wide
            columns = max(1, min(4, fitting))
            figure.legend(loc="outside upper left", ncols=columns, fontsize=7.5, handlelength=1.4, columnspacing=1.2)
    return svg[0]


def dot_chart(name: str, dots: Sequence[Dot], *, x_label: str, levels: Sequence[Level] = ()) -> str:
    """SVG with one row per dot, first on top, and its interval as a bar."""
    top = len(dots) - 0.35 + 0.35 * len(levels)  # the names of levels stand below each other, over the first row
    with drawing(name, height=1.0 + 0.3 * (top + 0.35)) as (_, axes, svg):
        for row, dot in enumerate(reversed(dots)):
            axes.plot([dot.low, dot.high], [row, row], color=dot.color, linewidth=5, alpha=0.28, solid_capstyle="butt")
            axes.plot(dot.value, row, "o", color=dot.color, markersize=6)
            hover(axes, [(dot.value, row)], "", f"{dot.label}: {dot.value:.3f} [{dot.low:.3f}, {dot.high:.3f}]")
            axes.annotate(f"{dot.value:.3f}", (dot.value, row), xytext=(0, 6), textcoords="offset points",
                          ha="center", fontsize=7.5, bbox=CLEAR if levels else None)  # fmt: skip
        for i, level in enumerate(levels):
            axes.axvline(level.value, color=QUIET, linewidth=1.1, linestyle=(0, (5, 3)))
            axes.annotate(level.label, (level.value, top - 0.35 * (i + 1)), ha="right", va="center", xytext=(-4, 0),
                          textcoords="offset points", color=QUIET, fontsize=7.5, bbox=CLEAR)  # fmt: skip
        axes.set_yticks(range(len(dots)), [dot.label for dot in reversed(dots)], color=INK)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.set(xlabel=x_label, ylim=(-0.6, top - 0.1 if levels else top - 0.05))
    return svg[0]


def _ring(axes: Axes, line: Line) -> None:
    """Ring the first point of a curve and name it."""
    axes.plot(line.x[:1], line.y[:1], "o", markersize=7, markerfacecolor="white", markeredgecolor=line.color,
              markeredgewidth=1.6)  # fmt: skip
    axes.annotate(line.mark_first, (line.x[0], line.y[0]), xytext=(8, -9), textcoords="offset points", fontsize=7.5)


def hover(axes: Axes, points: Iterable[tuple[float, float]], name: str, text: str | None = None) -> None:
    """Let a pointer over each point show `text`, or its numbers: "NAME 3: 0.512"."""
    entries = getattr(axes, "hovered", [])
    entries += [(x, y, text or f"{name} {x:g}: {y:.4g}") for x, y in points if math.isfinite(x) and math.isfinite(y)]
    axes.hovered = entries  # type: ignore[attr-defined]


@contextmanager
def drawing(name: str, height: float) -> Iterator[tuple[Figure, Axes, list[str]]]:
    """A figure to draw in; the third value holds its SVG when the block ends."""
    with panels(name, _WIDTH, height) as (figure, [axes], svg):
        yield figure, axes, svg


@contextmanager
def panels(
    name: str, width: float, height: float, rows: int = 1, columns: int = 1, used: int | None = None
) -> Iterator[tuple[Figure, list[Axes], list[str]]]:
    """A figure of several axes, row by row, the first `used` of them (None is all); the rest as `drawing`."""
    import matplotlib

    from ghar.metrics.figure import LaidOutFigure

    svg: list[str] = []
    style: dict[Any, Any] = {**_STYLE, "svg.hashsalt": name}
    with matplotlib.rc_context(style):
        figure = LaidOutFigure(figsize=(width, height))
        axes: list[Axes] = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
        for one in axes[used:] if used is not None else ():
            one.remove()
        axes = axes[:used]
        yield figure, axes, svg
        buffer = io.StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    svg.append(_inline(buffer.getvalue(), name, "".join(_targets(figure, one, height) for one in axes)))


def _targets(figure: Figure, axes: Axes, height: float) -> str:
    """Circles that no one sees, each with what a pointer over it is shown."""
    scale, circles = _POINT / figure.dpi, []
    for x, y, text in getattr(axes, "hovered", []):
        left, up = axes.transData.transform((x, y)) * scale
        place = f'cx="{left:.1f}" cy="{height * _POINT - up:.1f}" r="{_REACH}"'
        circles.append(f'<circle class="hit" {place} fill-opacity="0"><title>{escape(text)}</title></circle>')
    return "".join(circles)


def _inline(svg: str, name: str, targets: str) -> str:
    """The <svg> element alone, as wide as its place allows, with a spoken name and without group ids."""
    body = svg[svg.index("<svg") :]
    body = re.sub(r'<g id="[^"]*"', "<g", body)
    view_box = re.search(r'viewBox="[^"]*"', body)
    assert view_box is not None, "matplotlib writes a viewBox"
    label = escape(name, quote=True)
    opening = f'<svg {view_box.group()} role="img" aria-label="{label}" xmlns:xlink="http://www.w3.org/1999/xlink">'
    inner, end, rest = body[body.index(">") + 1 :].rpartition("</svg>")
    return opening + inner + targets + end + rest
