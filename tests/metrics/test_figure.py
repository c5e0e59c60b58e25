"""A chart laid out without the drawing that is thrown away is the chart that matplotlib draws."""

from __future__ import annotations

import io

import pytest
from matplotlib.figure import Figure

from ghar.metrics.charts import Dot, Level, Line, dot_chart, line_chart, panels
from ghar.metrics.figure import LaidOutFigure


def charts() -> list[str | bytes]:
    first = Line("first", [0, 1, 2], [0.1, 0.4, 0.3], "#0b5cad", [0.0, 0.3, 0.2], [0.2, 0.5, 0.4], "before")
    second = Line("another, of a longer name", [0, 1, 2], [0.3, 0.2, 0.6], "#b45309")
    dots = [Dot("rule " * (1 + n), 0.2 * n, 0.1 * n, 0.3 * n, "#0f766e") for n in range(4)]
    drawn: list[str | bytes] = [
        line_chart("lines", [first, second], x_label="update", y_label="reward", levels=[Level("ceiling", 0.9)]),
        dot_chart("dots", dots, x_label="accuracy", levels=[Level("usual answer", 0.4)]),
    ]
    with panels("bars", 7, 4, rows=2, columns=2, used=3) as (figure, axes, svg):
        for one in axes:
            one.bar(range(3), [1, 3, 2], label="all")
            one.set_xticks(range(3), ["none", "one or two", "more"], rotation=40)
        figure.suptitle("Bars")
        figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper left")
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=90, metadata={"Software": None})
    return [*drawn, *svg, png.getvalue()]


@pytest.mark.slow
def test_it_is_the_same_to_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    found = charts()
    monkeypatch.setattr(LaidOutFigure, "draw", Figure.draw)
    assert charts() == found
