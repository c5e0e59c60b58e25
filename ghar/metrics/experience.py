"""EXPRAG's part of report.html: for one patient which stays were ranked, what their reports said, how it was used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ghar.metrics.traces import shorten

Row = Mapping[str, Any]
LONGEST = 1_500  # characters of a piece that are shown


def one_patient(episodes: Mapping[str, Iterable[Row]]) -> dict[str, Any] | None:
    """What the section shows, from episode rows by policy; None where no policy looked experience up.

    The patient is the first one whom the main policy answered rightly with something it found, else the first one that
    it found anything for. `answers`: what every policy chose for the same patient.
    """
    rows = {name: list(found) for name, found in episodes.items()}
    main = next((name for name in ("exprag", "scripted") if any(map(_found, rows.get(name, ())))), None)
    if main is None:
        return None
    told = [row for row in rows[main] if _found(row)]
    row = next((row for row in told if row["correct"]), told[0])
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
        "found": [{**p, "rank": rank.get(p["stay"]), "text": shorten(p["text"], LONGEST)} for p in experience["found"]],
        "options": experience["options"],
        "answers": answers,
    }


def _found(row: Row) -> bool:
    return bool((row.get("experience") or {}).get("found"))
