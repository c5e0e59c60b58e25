"""Restricting a reply to a list of choices, the same way in the engine and in the trainer."""

from __future__ import annotations

from collections.abc import Sequence


def allowed_tokens(choice_ids: Sequence[Sequence[int]], prefix: Sequence[int]) -> tuple[int, ...]:
    """Ids that may follow `prefix` so that some choice can still be completed, sorted and without duplicates.

    Empty when `prefix` is a whole choice (or no beginning of one). Sampling from the softmax over these ids
    alone and recomputing it alone keeps the PPO ratio exact; ignoring the restriction would train off-policy.
    """
    n = len(prefix)
    start = tuple(prefix)
    return tuple(sorted({c[n] for c in choice_ids if len(c) > n and tuple(c[:n]) == start}))
