"""How much of a result the base model had before training: stated beside each result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def base_in_words(summary: Mapping[str, Any]) -> str | None:
    """Compare trained and base model above what needs no retrieval; None where one of the three is not known.

    The floor is the upper bound without retrieval where the world is known, else the usual label.
    """
    policies, bounds = summary.get("policies") or {}, summary.get("ceilings") or {}
    final, base = (_accuracy(policies, summary.get(key)) for key in ("main", "base"))
    bound, usual = bounds.get("parametric"), _accuracy(policies, "usual")
    floor, about = (usual, "usual label") if bound is None else (bound, "upper bound without retrieval")
    if final is None or base is None or floor is None:
        return None
    share = f"; the base model has {(base - floor) / (final - floor):.0%} of it" if final > floor else ""
    gains = f"{base - floor:+.3f} before training ({base:.3f}), {final - floor:+.3f} after it ({final:.3f})"
    return f"accuracy above the {about} ({floor:.3f}): {gains}{share}"


def _accuracy(policies: Mapping[str, Any], name: str | None) -> float | None:
    interval = (policies.get(name) or {}).get("accuracy") if name else None
    return interval[0] if interval else None
