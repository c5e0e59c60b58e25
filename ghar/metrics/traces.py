"""What a page shows of one episode: its turns, its look-ups, and its reward with arithmetic that adds up."""

from __future__ import annotations

from collections.abc import Mapping
from math import isclose
from typing import Any

Row = Mapping[str, Any]
LONGEST_TEXT = 12_000  # characters; a report of full-scale prompts must still open on a phone


def episode(row: Row, prompts: bool = True) -> dict[str, Any]:
    """The parts of a row that the page shows on request, long texts cut in the middle; prompts: with them."""
    turns = [
        {
            "agent": turn["agent"], "role": turn["role"], "step": turn["step"], "ok": turn["format_ok"],
            **({"completed": True} if turn.get("completed") else {}),
            "reply": shorten(turn["reply"]), "evidence": _short(turn["evidence"]),
            "prompt": shorten(turn["prompt"]) if prompts else None,
        }
        for turn in row["turns"]
    ]  # fmt: skip
    return {"line": reward_line(row), "failure": row["failure"], "turns": turns, "lookups": row.get("lookups") or []}


def _short(text: str | None) -> str | None:
    return None if text is None else shorten(text)


def reward_line(row: Row) -> str:
    """The reward and what it is made of; "=" only before terms that add up to it.

    Shown are the weighted terms where the row has them, else those before their weights.
    """
    if row["reward"] is None:
        return "Reward unknown"
    weighted = row.get("weighted")
    terms = row["rewards"] if weighted is None else weighted
    words = {term: "unknown" if value is None else format(value, "+.3f") for term, value in terms.items()}
    parts = ", ".join(f"{term} {word}" for term, word in words.items())
    reward = f"Reward {row['reward']:.3f}"
    if not terms:
        return reward
    if None not in terms.values() and isclose(sum(terms.values()), row["reward"], rel_tol=1e-6, abs_tol=1e-6):
        return f"{reward} = {parts}"
    kind = "terms before their weights" if weighted is None else "terms, which do not add up to it"
    return f"{reward}; {kind}: {parts}"


def shorten(text: str, longest: int = LONGEST_TEXT) -> str:
    """The text, its middle replaced by a note when it is longer than `longest` characters."""
    if len(text) <= longest:
        return text
    half = longest // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out of this report ...]\n{text[-half:]}"
