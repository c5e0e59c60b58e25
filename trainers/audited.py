"""The audit of a run: what its task shows, held against the prediction and the outcome, in paper and strict mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envs.records import Records
from ghar.metrics.look import Section, render_section

LEAKS = 0.05  # share of samples from which on a page warns


def audited(records: Records) -> dict[str, Any]:
    """What summary.json holds under "audit"; an empty dictionary for a task that shows no visits."""
    modes = {
        mode: {
            "samples": found.samples, "facts": found.facts, "late": found.late, "with_outcome": found.with_outcome,
            "at_outcome": found.at_outcome, "leak_score": round(found.score, 4), "hours_ahead": found.hours,
        }
        for mode, found in records.exposures().items()
    }  # fmt: skip
    if not modes:
        return {}
    return {"audit": {"used": records.config.data.leakage, "modes": modes}}


def in_words(summary: Mapping[str, Any]) -> list[str]:
    """A sentence for each mode; none where a run has no audit."""
    found = summary.get("audit") or {}
    sentences = []
    for mode, row in (found.get("modes") or {}).items():
        used = " (this run)" if mode == found["used"] else ""
        sentences.append(
            f"leak score of {mode}{used}: {row['leak_score']:.2f}; of {row['facts']:,} facts shown {row['late']:,} "
            f"were recorded after the prediction and {row['with_outcome']:,} only with the outcome"
        )
    return sentences


def section(summary: Mapping[str, Any]) -> list[Section]:
    """The part of report.html; nothing where a run has no audit."""
    found = summary.get("audit") or {}
    if not found:
        return []
    leaks = found["modes"].get(found["used"], {}).get("leak_score", 0) >= LEAKS
    html = render_section("ghar.metrics", "templates/audit.html", used=found["used"], modes=found["modes"], leaks=leaks)
    return [Section("What was known when", html)]
