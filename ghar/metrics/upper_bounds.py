"""The best possible accuracies that a summary knows, what they mean in words, and how much of a result the base model
had before training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MEANS = {
    "parametric": "without retrieval, from codes alone, knowing of rare ones only how often each severity occurs",
    "memory": "without retrieval, from codes alone, with all that the labels of the training patients tell",
    "retrieval": "with retrieval",
    "examples": "with those cases that tell most, as many as may be shown",
    "pool": "with every case that may be shown",
    "truth": "with all that is true",
    "communities": "with all that the communities found tell",
    "experience only": "counting all reports that were ranked alike, of the patient who asks nothing known",
    "experience": "with the reports that were ranked, knowing which of them follow the patient's own habits",
    "gold reports": "with reports alone that follow the patient's own habits",
    "ni": "one round that asks with the whole record",
    "nt": "whole graph, no follow-up",
    "nl": "raw evidence in the room of a summary",
    "nm": "whole graph in place of meta-paths",
}


def read_upper_bounds(summary: Mapping[str, Any]) -> dict[str, float]:
    """Read {name: accuracy} of the ceilings, the lowest first, without those of unknown value."""
    values = {name: value for name, value in (summary.get("ceilings") or {}).items() if value is not None}
    return {name: values[name] for name in sorted(values, key=values.__getitem__) if math.isfinite(values[name])}


def equal_bounds(summary: Mapping[str, Any]) -> dict[str, list[str]]:
    """{"0.651": names of the ceilings of this value}, the lowest value first."""
    names: dict[str, list[str]] = {}
    for name, value in read_upper_bounds(summary).items():
        names.setdefault(f"{value:.3f}", []).append(name)
    return names


def in_words(summary: Mapping[str, Any]) -> list[str]:
    """ "memory 0.920 (without retrieval, with all that ...)" of each; those of one value that need no such words
    together."""
    lines = []
    for value, names in equal_bounds(summary).items():
        plain = [name for name in names if name not in MEANS]
        lines += [f"{', '.join(plain)} {value}"] if plain else []
        lines += [f"{name} {value} ({MEANS[name]})" for name in names if name in MEANS]
    return lines


def base_in_words(summary: Mapping[str, Any]) -> str | None:
    """Compare trained and base model above what needs no retrieval; None where one of the three is not known, and
    where the base model is all there was.

    The floor is the upper bound without retrieval where the world is known, else the usual label.
    """
    policies, bounds = summary.get("policies") or {}, summary.get("ceilings") or {}
    final, base = (_accuracy(policies, summary.get(key)) for key in ("main", "base"))
    bound, usual = bounds.get("parametric"), _accuracy(policies, "usual")
    floor, about = (usual, "usual label") if bound is None else (bound, "upper bound without retrieval")
    trained = (summary.get("answered_by") or {}).get(summary.get("main")) != "base"
    if final is None or base is None or floor is None or not trained:
        return None
    share = f"; the base model has {(base - floor) / (final - floor):.0%} of it" if final > floor else ""
    gains = f"{base - floor:+.3f} before training ({base:.3f}), {final - floor:+.3f} after it ({final:.3f})"
    return f"accuracy above the {about} ({floor:.3f}): {gains}{share}"


def _accuracy(policies: Mapping[str, Any], name: str | None) -> float | None:
    interval = (policies.get(name) or {}).get("accuracy") if name else None
    return interval[0] if interval else None
