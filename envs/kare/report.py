"""KARE's part of the report: one patient's communities, why each was chosen, the reasoning chain; what was built."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.summary_files import SUMMARY
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportSection, in_order, render_section
from ghar.metrics.traces import shorten

Row = Mapping[str, Any]
TITLES = {"scripted": "Scripted teacher", "kare": "KARE"}
LONGEST = 1_500  # characters of a summary that are shown
FACTORS = {  # as dgra.Factors names them: how they are shown
    "hits": "Hits", "decay": "Decay", "coherence": "Coherence", "recency": "Recency", "theme": "Theme",
    "relevance": "Relevance",
}  # fmt: skip
NOUNS = {MEDQA: "question", SUMMARY: "text"}  # by task; of others patient
ROOM = ("found", "cut", "shortened")  # of Rows.numbers
CHAINED = ("kare", "scripted")  # methods that reason beside their answer, the most telling first


def sections(run: RunFolder, summary: Mapping[str, Any]) -> list[ReportSection]:
    """The part about communities, from the run's episodes by method and what its summary says of the build."""
    titles = {**TITLES, **(summary.get("titles") or {})}
    names = in_order(run.episode_names(), titles)
    content = _content({name: run.episodes(name) for name in names}, summary)
    shown_as = {name: titles.get(name, name) for name in [*content["errors"], *content["guidelines"], *names]}
    html = render_section("ghar.envs.kare", "report.html", shown_as=shown_as, **content)
    return [ReportSection("Communities", html)]


def _content(episodes: Mapping[str, Iterable[Row]], summary: Mapping[str, Any]) -> dict[str, Any]:
    """What the part shows.

    The patient is the first one whom the first of `CHAINED` answered rightly with communities and a chain, else the
    first with communities. `patient` is None where no method was shown any.
    """
    read, policies = {name: list(own) for name, own in episodes.items()}, summary.get("policies") or {}
    rows = {name: own for name, own in read.items() if all("found" in row for row in own)}  # baselines show nothing
    order = [name for name in (*CHAINED, *rows) if name in rows]
    candidates = [
        (name, row) for name in dict.fromkeys(order) for row in rows[name] if any(map(_is_community, row["found"]))
    ]
    content = {
        "factors": FACTORS,
        "build": _build(summary.get("build") or {}),
        "chains": summary.get("chains") or {},
        "guidelines": {name: guidelines["advice"] for name, guidelines in (summary.get("guidelines") or {}).items()},
        "errors": {name: policy.get("errors") or {} for name, policy in policies.items()},
        "noun": NOUNS.get((summary.get("task") or {}).get("name", ""), "patient"),
        "room": {name: tuple(policy.get(what, 0) for what in ROOM) for name, policy in policies.items()},
        "patient": None,
    }
    if not candidates:
        return content
    name, row = next((pair for pair in candidates if pair[1]["correct"] and pair[1]["chain"]), candidates[0])
    answers = [
        (other, each["prediction"], each["correct"], shorten(each["chain"], LONGEST))
        for other, some in rows.items() for each in some if each["sample_id"] == row["sample_id"]
    ]  # fmt: skip
    return content | {
        "patient": shorten(row["patient"]),
        "similar": shorten(row["similar"]),
        "policy": name,
        "sample_id": row["sample_id"],
        "label": row["label"],
        "found": [{**p, "text": shorten(p["text"], LONGEST)} for p in row["found"] if _is_community(p)],
        "chain": shorten(row["chain"]),
        "answers": answers,
        "reference": shorten(row.get("reference") or ""),
        "summaries": {
            other: shorten(each["summary"])
            for other, some in rows.items() for each in some
            if each["sample_id"] == row["sample_id"] and "summary" in each
        },
    }


def _is_community(passage: Mapping[str, Any]) -> bool:
    return "factors" in passage


def _build(steps: Mapping[str, Mapping[str, Any]]) -> list[tuple[str, list[tuple[str, str]]]]:
    """(step, [(what, how much)]) of the pipeline: numbers as they stand, lists by their length, parts one by one."""
    return [(step, list(_flat(report, ""))) for step, report in steps.items()]


def _flat(report: Mapping[str, Any], before: str) -> Iterable[tuple[str, str]]:
    for name, value in report.items():
        title = f"{before}{name}".replace("_", " ")
        if isinstance(value, Mapping):
            yield from _flat(value, f"{title}: ")
        else:
            number = len(value) if isinstance(value, list) else value
            yield title, f"{number:,}" if isinstance(number, int) else str(number)
