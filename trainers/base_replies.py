"""What a new base model has learned of its exercises: its replies beside its teacher's, and beside the most common one.

A small model learns to read a kind of prompt all at once, after a plateau on which it gives the most common reply. How
long that takes differs by its first weights, and its loss hardly shows it: such replies are a few tokens of many.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ghar.trainers.sft.pairs import IGNORE, TokenExample, collate

COMPARED = 400  # replies of a role at most, spread over its exercises
AT_ONCE = 8  # prompts of a pass

Replies = Mapping[str, Mapping[str, float]]


def compare_replies(model: Any, tokenizer: Any, by_role: Mapping[str, Sequence[TokenExample]]) -> Replies:
    """Compare a model's replies with those that it has practised.

    Returns by role {"right": share of the replies of which each token is the likeliest one after the teacher's tokens
    before it, "usual": share of the most common reply, "replies": how many were compared}. A role without exercises is
    left out.
    """
    return {role: _compared(model, tokenizer, pairs) for role, pairs in by_role.items() if pairs}


def _compared(model: Any, tokenizer: Any, pairs: Sequence[TokenExample]) -> dict[str, float]:
    some = pairs[:: -(-len(pairs) // COMPARED)]
    batches = [some[start : start + AT_ONCE] for start in range(0, len(some), AT_ONCE)]
    right = sum(_right(model, tokenizer, batch) for batch in batches)
    [(_, most)] = Counter(tuple(pair.completion_ids) for pair in some).most_common(1)
    return {"right": right / len(some), "usual": most / len(some), "replies": len(some)}


def _right(model: Any, tokenizer: Any, pairs: Sequence[TokenExample]) -> int:
    """Count the pairs of which each token of the completion is the likeliest."""
    import torch

    rows = [
        {"input_ids": [*p.prompt_ids, *p.completion_ids],
         "labels": [IGNORE] * len(p.prompt_ids) + list(p.completion_ids)}
        for p in pairs
    ]  # fmt: skip
    batch = collate(rows, tokenizer.pad_token_id)
    with torch.no_grad():
        likeliest = model(batch["input_ids"].to(model.device)).logits[:, :-1].argmax(-1).cpu()
    wanted = batch["labels"][:, 1:]
    return int(((likeliest == wanted) | (wanted == IGNORE)).all(-1).sum())


def base_replies(folder: Path) -> Replies:
    """What `compare_replies` found when the base model in a folder was made; empty where an older version wrote it."""
    return json.loads((folder / "config.json").read_text()).get("base_replies", {})
