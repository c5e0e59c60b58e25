"""EHR-RAG's part of the report: for one patient what was retrieved, from when, what of it fitted into the prompt that
decided, and how each argument used it. Rows stand there whole."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from ghar.metrics.charts import PALETTE, QUIET, Level, Line, drawing, line_chart
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportSection, in_order, render_section
from ghar.metrics.traces import shorten

Row = Mapping[str, Any]
TITLES = {"ehr_rag": "EHR-RAG"}
PATHS = {"numbers": "measurements", "support": "for the outcome", "oppose": "against the outcome", "": "the question"}
PATHS_OF_TEXTS = {"support": "for", "oppose": "against", "": "the question"}
TICKS = {-3650: "10 years", -1095: "3 years", -365: "1 year", -90: "90 days", -30: "30 days", -7: "7 days",
         -1: "1 day", 0: "0"}  # fmt: skip
LEVELS = ("rag", "ehr_rag", "scripted_rag", "scripted")  # Fig. 2's methods without training samples, and their rules
COLORS = {"numbers": PALETTE[3], "support": PALETTE[0], "oppose": PALETTE[1], "": PALETTE[2]}


def sections(run: RunFolder, summary: Mapping[str, Any]) -> list[ReportSection]:
    """The part about events, from the run's episodes by method; none where no method looked any up."""
    titles = {**TITLES, **(summary.get("titles") or {})}
    names = in_order(run.episode_names(), titles)
    content = _content({name: run.episodes(name) for name in names}, summary)
    if content is None:
        return []
    shown_as = {name: titles.get(name, name) for name in [*names, *(summary.get("policies") or {})]}
    labels = (summary.get("task") or {}).get("labels") or []
    html = render_section("ghar.envs.ehr_rag", "report.html", shown_as=shown_as, labels=labels, **content)
    of_text = content["policy"] is not None and content["prediction_time"] is None
    return [ReportSection("Sentences looked up" if of_text else "Events looked up", html)]


def _content(episodes: Mapping[str, Iterable[Row]], summary: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the part shows; None where no method looked events up.

    The patient is the first one whom the first method with two arguments answered rightly with both arguments resting
    on something, else the first one that it found anything for.
    """
    order = list(summary.get("policies") or episodes)
    rows = {name: list(episodes[name]) for name in order if name in episodes}
    candidates = [
        (name, row) for name in rows for row in rows[name] if any(p["passages"] for p in row.get("found", ()))
    ]
    shots = shots_chart(summary)
    if not candidates:
        return {"policy": None, "shots": shots} if shots else None
    candidates.sort(key=lambda pair: -_worth(pair[1]))  # stable: first method, first patient
    name, row = candidates[0]
    policies = summary.get("policies") or {}
    timed = "prediction_time" in row  # texts have no times
    paths = PATHS if timed else PATHS_OF_TEXTS
    answers = [
        (other, each["prediction"], each["correct"])
        for other, some in rows.items() for each in some if each["sample_id"] == row["sample_id"]
    ]  # fmt: skip
    return {
        "policy": name, "sample_id": row["sample_id"], "patient": shorten(row["patient"]), "label": row["label"],
        "prediction_time": row.get("prediction_time"),
        "lookups": [_describe_lookup(lookup, paths) for lookup in row["found"]],
        "arguments": {paths[side]: shorten(argument) for side, argument in row["arguments"].items()},
        "answers": answers, "timeline": _timeline(row) if timed else None, "shots": shots,
        "class_f1": {method: numbers.get("class_f1") or {} for method, numbers in policies.items()},
        "errors": {method: numbers.get("errors") or {} for method, numbers in policies.items()},
    }  # fmt: skip


def _worth(row: Row) -> int:
    """How much a patient shows: two arguments, both resting on something, a right answer."""
    used = {side for lookup in row["found"] for passage in lookup["passages"] for side in passage["used"]}
    return 2 * bool(row["arguments"]) + len(used) + bool(row["correct"])


def _describe_lookup(lookup: Row, paths: Mapping[str, str]) -> dict[str, Any]:
    passages = [
        {**passage, "lines": _lines(passage),
         "used": {paths[side]: lines for side, lines in passage["used"].items()}}
        for passage in lookup["passages"]
    ]  # fmt: skip
    return {**lookup, "path": paths[lookup["path"]], "color": COLORS[lookup["path"]], "passages": passages}


def _lines(passage: Row) -> list[tuple[str, bool]]:
    """Each line of a passage, whole, and whether the prompt that decided showed it."""
    fitted = set(passage.get("fitted", ()))
    return [(line, i in fitted) for i, line in enumerate(passage["text"].split("\n"))]


def _timeline(row: Row) -> str:
    """SVG: one bar a passage from its first to its last event, one line a search, up to the prediction time.

    A filled dot stands at the end of what an argument used, a ring at the end of what it did not.
    """
    lookups: Sequence[Row] = [lookup for lookup in row["found"] if lookup["passages"]]
    end = datetime.fromisoformat(row["prediction_time"])
    with drawing("What was retrieved, and when", height=1.1 + 0.34 * len(lookups)) as (_, axes, svg):
        for line, lookup in enumerate(reversed(lookups)):
            color = COLORS[lookup["path"]]
            for passage in lookup["passages"]:
                first, last = (_days(passage[at], end) for at in ("first", "last"))
                axes.plot([first, last], [line, line], color=color, linewidth=5, alpha=0.3, solid_capstyle="butt")
                fill = color if passage["used"] else "white"
                axes.plot(last, line, "o", markersize=5, markerfacecolor=fill, markeredgecolor=color)
        axes.axvline(0, color=QUIET, linewidth=1.1, linestyle=(0, (5, 3)))
        names = [f"{PATHS[lookup['path']]}, {lookup['step'] + 1}" for lookup in reversed(lookups)]
        axes.set_yticks(range(len(lookups)), names)
        axes.tick_params(axis="y", length=0)
        axes.set_xscale("symlog", linthresh=1.0)
        start = min((axes.get_xlim()[0], -1.0))
        ticks = {day: name for day, name in TICKS.items() if day >= start}
        axes.set_xticks(list(ticks), list(ticks.values()))
        axes.minorticks_off()
        axes.set(xlabel="time before the prediction", xlim=(start, 0.3), ylim=(-0.6, len(lookups) - 0.4))
    return svg[0]


def _days(time: str, end: datetime) -> float:
    """Days from `end`, below 0 before it."""
    return (datetime.fromisoformat(time) - end).total_seconds() / 86_400


def shots_chart(summary: Mapping[str, Any]) -> str | None:
    """Macro-F1 of the regressions by training samples a class, the methods as levels (Fig. 2 of EHR-RAG)."""
    by_method = {name: scores for name, scores in (summary.get("shots") or {}).items() if len(scores) > 1}
    if not by_method:
        return None
    lines = []
    for i, (name, by_shots) in enumerate(by_method.items()):
        sizes = [int(shots) for shots in by_shots if shots != "all"]
        x = [*sizes, 2 * max(sizes)]  # "all" stands one step beyond the last
        numbers = [by_shots[shots]["macro_f1"] for shots in by_shots]
        y, low, high = (tuple(number[at] for number in numbers) for at in range(3))
        lines.append(Line(name, [float(v) for v in x], y, PALETTE[i], low, high))
    played, titles = summary.get("policies") or {}, {**TITLES, **(summary.get("titles") or {})}
    levels = [
        Level(titles.get(name, name), played[name]["macro_f1"][0])
        for name in LEVELS if "macro_f1" in played.get(name, {})
    ]  # fmt: skip
    x_label = "training samples a class (last: all)"
    return line_chart("Macro-F1 of the regressions", lines, x_label=x_label, y_label="", levels=levels)
