"""Size of a run's model, what it was trained on, its best step, and what its base had learned, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def size_in_words(summary: Mapping[str, Any]) -> str | None:
    """State parameters and vocabulary from `summary["model"]`; None where no model was measured."""
    model = summary.get("model")
    if not model:
        return None
    return f"{model['parameters']:,} parameters, vocabulary of {model['vocabulary']:,} tokens"


def best_step_in_words(summary: Mapping[str, Any]) -> str | None:
    """State which step of SFT was the best on validation samples, and after how long, from `summary["best_step"]`."""
    best = summary.get("best_step")
    return None if best is None else f"step {best['step']:,} of SFT, after {best['seconds']:,.1f} s of training"


def budget_in_words(summary: Mapping[str, Any]) -> str | None:
    """State what the model was trained on from `summary["trained_on"]`; None for a run that trained nothing."""
    parts = [f"{number:,} {name}" for name, number in (summary.get("trained_on") or {}).items() if number]
    return ", ".join(parts) or None


def replies_in_words(replies: Mapping[str, Mapping[str, float]]) -> str:
    """State how often a base model replied as its teacher (`summary["base_replies"]`), by role."""
    return ", ".join(f"{role} {of['right']:.0%} (most common reply {of['usual']:.0%})" for role, of in replies.items())
