"""The benchmark's counting, at small size."""

from __future__ import annotations

from benchmarks.selection import counts


def test_fewest_prompts_with_the_same_picks() -> None:
    found = counts(3)
    ours, released, full = (found[f"scored prompts, {rule}"] for rule in ("ours", "released", "full greedy"))
    assert 9 <= ours < released < full and found["identical picks under diminishing gains"] == 3
