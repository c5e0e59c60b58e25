"""EXPRAG's part of the report: for one patient which stays were ranked, what their reports said, what of it
fitted into the prompt, how it was used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ghar.metrics.runfolder import RunFolder
from ghar.metrics.style import ReportSection, in_order, render_section
from ghar.metrics.traces import shorten

Row = Mapping[str, Any]
TITLES = {"scripted": "Scripted teacher"}


def sections(run: RunFolder, summary: Mapping[str, Any]) -> list[ReportSection]:
    """One patient's experience, from the run's episodes by policy; no part where no policy looked any up."""
    titles = {**TITLES, **(summary.get("titles") or {})}
    names = in_order(run.episode_names(), titles)
    content = _content({name: run.episodes(name) for name in names})
    if content is None:
        return []
    shown_as = {name: titles.get(name, name) for name in names}
    html = render_section("ghar.envs.exprag", "report.html", shown_as=shown_as, **content)
    return [ReportSection("Experience", html)]


def _content(episodes: Mapping[str, Iterable[Row]]) -> dict[str, Any] | None:
    """What the part shows; None where no policy looked experience up.

    The patient is the first one whom the main policy answered rightly with something it found, else the first one that
    it found anything for. `answers`: what every policy chose for the same patient.
    """
    rows = {name: list(own) for name, own in episodes.items()}
    main = next((name for name in ("exprag", "scripted") if any(map(_has_evidence, rows.get(name, ())))), None)
    if main is None:
        return None
    candidates = [row for row in rows[main] if _has_evidence(row)]
    row = next((row for row in candidates if row["correct"]), candidates[0])
    experience = row["experience"]
    rank = {stay["stay"]: number for number, stay in enumerate(experience["ranked"], 1)}
    answers = [
        (name, other["prediction"], other["correct"])
        for name, some in rows.items()
        for other in some
        if other["sample_id"] == row["sample_id"]
    ]
    return {
        "policy": main,
        "sample_id": row["sample_id"],
        "patient": shorten(row["patient"]),
        "label": row["label"],
        "ranked": experience["ranked"],
        "queries": experience["queries"],
        "found": [{**p, "rank": rank.get(p["stay"])} for p in experience["found"]],
        "said": experience.get("said", ""),
        "options": experience["options"],
        "answers": answers,
    }


def _has_evidence(row: Row) -> bool:
    return bool((row.get("experience") or {}).get("found"))
