"""A handful of episodes to read: the same patients under every policy, chosen to differ from each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Row = dict[str, Any]
SHOWN = 12
LONGEST_TEXT = 12_000  # characters; a report of full-scale prompts must still open on a phone


def choose(rows: Iterable[Row], count: int = SHOWN) -> list[str]:
    """Sample ids of `count` episodes, taken in turn from right and wrong, retrieved and not, needed and not."""
    kinds: dict[tuple, list[str]] = {}
    for row in rows:
        kind = (row["correct"], row["retrieved"], row["needs_retrieval"], row["failure"] is None)
        ids = kinds.setdefault(kind, [])
        if len(ids) < count:
            ids.append(row["sample_id"])
    queues = [kinds[kind] for kind in sorted(kinds, key=str)]
    turns = [ids[i] for i in range(count) for ids in queues if i < len(ids)]
    return turns[:count]


def by_patient(episodes: Mapping[str, Iterable[Row]], main: str, sample_ids: Sequence[str]) -> list[dict[str, Any]]:
    """One entry per sample: {"id", "patient", "label", "runs": {policy: row}}, `main` first among the policies."""
    wanted = set(sample_ids)
    found = {name: {row["sample_id"]: row for row in rows if row["sample_id"] in wanted}
             for name, rows in episodes.items()}  # fmt: skip
    order = [main, *(name for name in episodes if name != main)]
    patients = []
    for sample_id in sample_ids:
        runs = {name: _shown(found[name][sample_id]) for name in order if sample_id in found[name]}
        first = runs[main]
        patients.append({"id": sample_id, "patient": shorten(first["patient"]), "label": first["label"], "runs": runs})
    return patients


def _shown(row: Row) -> Row:
    turns = [
        {**turn, **{key: shorten(turn[key]) for key in ("prompt", "reply", "evidence") if turn[key] is not None}}
        for turn in row["turns"]
    ]
    return {**row, "turns": turns}


def shorten(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, its middle replaced by a note when it is longer than `longest` characters."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out of this report ...]\n{text[-half:]}"
