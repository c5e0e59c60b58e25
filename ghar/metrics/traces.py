"""A handful of episodes to read: the same patients under every policy, chosen to differ from each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isclose
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
    """One entry per sample: {"id", "subject", "patient", "label", "runs": {policy: row}}, `main` first among the
    policies; a row also has "reward_line"."""
    wanted = set(sample_ids)
    found = {name: {row["sample_id"]: row for row in rows if row["sample_id"] in wanted}
             for name, rows in episodes.items()}  # fmt: skip
    order = [main, *(name for name in episodes if name != main)]
    patients = []
    for sample_id in sample_ids:
        runs = {name: _shown(found[name][sample_id]) for name in order if sample_id in found[name]}
        first = runs[main]
        about = {"id": sample_id, "subject": first.get("subject_id"), "label": first["label"]}
        patients.append({**about, "patient": shorten(first["patient"]), "runs": runs})
    return patients


def agents(patients: Sequence[Mapping[str, Any]]) -> list[str]:
    """Names of the agents of these episodes, in the order in which they first acted."""
    rows = [row for patient in patients for row in patient["runs"].values()]
    return list(dict.fromkeys(turn["agent"] for row in rows for turn in row["turns"]))


def reward_line(row: Row) -> str:
    """The reward and what it is made of; "=" only before terms that add up to it.

    Shown are the weighted terms where the row has them, else those before their weights.
    """
    if row["reward"] is None:
        return "Reward unknown"
    weighted = row.get("weighted")
    terms = row["rewards"] if weighted is None else weighted
    told = ", ".join(f"{term} {'unknown' if value is None else format(value, '+.3f')}" for term, value in terms.items())
    reward = f"Reward {row['reward']:.3f}"
    if not terms:
        return reward
    if None not in terms.values() and isclose(sum(terms.values()), row["reward"], rel_tol=1e-6, abs_tol=1e-6):
        return f"{reward} = {told}"
    kind = "terms before their weights" if weighted is None else "terms, which do not add up to it"
    return f"{reward}; {kind}: {told}"


def _shown(row: Row) -> Row:
    turns = [
        {**turn, **{key: shorten(turn[key]) for key in ("prompt", "reply", "evidence") if turn[key] is not None}}
        for turn in row["turns"]
    ]
    return {**row, "turns": turns, "reward_line": reward_line(row)}


def shorten(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, its middle replaced by a note when it is longer than `longest` characters."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out of this report ...]\n{text[-half:]}"
