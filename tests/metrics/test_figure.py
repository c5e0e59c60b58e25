"""A chart laid out without the drawing that is thrown away is the chart that matplotlib draws."""

from __future__ import annotations

import io
import warnings
from itertools import combinations

import pytest
from matplotlib.figure import Figure

from ghar.metrics.charts import Dot, Level, Line, dot_chart, line_chart, panels
from ghar.metrics.figure import LaidOutFigure
from ghar.metrics.report import ceiling_levels


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


def test_a_chart_has_room_beside_the_names_of_many_ceilings() -> None:
    names = [" and ".join(some) for n in range(1, 4) for some in combinations(("onset", "trigger", "slope"), n)]
    levels = ceiling_levels({"ceilings": dict.fromkeys(["nothing", *names], 0.65) | {"everything": 0.96}})
    assert [level.label for level in levels] == ["nothing and 7 more ceiling 0.650", "everything ceiling 0.960"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's of axes that have no room
        dot_chart("dots", [Dot("after SFT", 0.86, 0.84, 0.88, "#1d4ed8")], x_label="accuracy", levels=levels)
