"""What supervised training reads: pairs of token ids, and batches of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

IGNORE = -100  # label of a token without loss, as torch and TRL have it


@dataclass(frozen=True)
class Pair:
    """What to say after what: token ids, the completion's end token included when the reply should end there.

    weight: of each of its completion's tokens. Without weights the loss is the mean over the completion tokens of a
    batch; where one pair has a weight all have, and it is the mean over pairs of weight * sum over tokens.
    """

    prompt_ids: Sequence[int]
    completion_ids: Sequence[int]
    weight: float | None = None


def dataset(pairs: Sequence[Pair]) -> Any:
    """Hugging Face's dataset of the pairs: input_ids, labels, and weight where they have one."""
    from datasets import Dataset

    columns: dict[str, list[Any]] = {
        "input_ids": [[*p.prompt_ids, *p.completion_ids] for p in pairs],
        "labels": [[IGNORE] * len(p.prompt_ids) + list(p.completion_ids) for p in pairs],
    }
    if pairs[0].weight is not None:
        columns["weight"] = [pair.weight for pair in pairs]
    return Dataset.from_dict(columns)


def collate_left(rows: Sequence[Mapping[str, Any]], pad_id: int) -> dict[str, Any]:
    """Pad on the left, so that completions end together and only the last columns need logits.

    input_ids, labels, attention_mask, position_ids: int64 [R, L]; weights, where rows have them: a NumPy float64 [R].
    """
    import torch

    width = max(len(row["input_ids"]) for row in rows)
    gaps = [width - len(row["input_ids"]) for row in rows]
    gap = torch.tensor(gaps)[:, None]
    columns = torch.arange(width)
    weights = {"weights": np.array([row["weight"] for row in rows])} if "weight" in rows[0] else {}
    return {
        "input_ids": torch.tensor([[pad_id] * g + list(r["input_ids"]) for g, r in zip(gaps, rows, strict=True)]),
        "labels": torch.tensor([[IGNORE] * g + list(r["labels"]) for g, r in zip(gaps, rows, strict=True)]),
        "attention_mask": (columns >= gap).long(),
        "position_ids": (columns - gap).clamp(min=0),
        **weights,
    }
