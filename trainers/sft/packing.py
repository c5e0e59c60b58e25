"""SFT's micro-batches by tokens: pairs of one step that begin alike (turns and attempts over one record) are read as a
tree, in which what they share stands once, as in reinforcement learning (ghar.trainers.rl.fast.rows)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ghar.trainers.rl.fast.last_layer import only_at
from ghar.trainers.rl.fast.rows import Batch, collate, packed, prefix_groups
from ghar.trainers.rl.trajectory import Row
from ghar.trainers.sft.pairs import IGNORE, TokenExample

DISTINCT = 4  # groups in a step at least: a step of one patient's turns would learn that patient


@dataclass(frozen=True)
class PackedPairs:
    """Pairs of one forward pass. trees: how many of them each tree has; weights: of each pair, None where there are
    none."""

    rows: tuple[Row, ...]
    trees: tuple[int, ...]
    weights: np.ndarray | None


def groups_of(pairs: Sequence[TokenExample], batch_size: int) -> list[list[int]]:
    """Pairs that begin alike, by index, in groups that are trained on in one step; () alone.

    Equal pairs are in different groups: a step that has an exercise three times learns less than from three exercises.
    """
    texts = [np.array([*pair.prompt_ids, *pair.completion_ids], np.int64) for pair in pairs]
    most = max(1, batch_size // DISTINCT)
    groups: list[list[int]] = []
    for layer in _distinct(texts):
        alike = (group for group, _ in prefix_groups([texts[i] for i in layer], most * max(map(len, texts))))
        groups += [[layer[i] for i in group[n : n + most]] for group in alike for n in range(0, len(group), most)]
    return groups


def _distinct(texts: Sequence[np.ndarray]) -> list[list[int]]:
    """Indices of the texts in layers without two equal ones: the first of each, the second of each, and so on."""
    layers: list[list[int]] = []
    seen: Counter[bytes] = Counter()
    for i, text in enumerate(texts):
        place = seen[key := text.tobytes()]
        seen[key] += 1
        if place == len(layers):
            layers.append([])
        layers[place].append(i)
    return layers


def repacked(batches: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """As many batches as before, with the same pairs shared out anew: each has "packed", what its passes read. Batches
    stay as they are where no pairs begin alike."""
    rows = [row for batch in batches for row in _rows(batch)]
    weights = np.concatenate([b["weights"] for b in batches]) if "weights" in batches[0] else None
    micros = packed(rows, max(batch["labels"].numel() for batch in batches))
    if all(len(micro.trees) == len(micro.rows) for micro in micros):
        return [dict(batch) for batch in batches]
    passes = [
        PackedPairs(tuple(rows[i] for i in micro.rows), micro.trees, None if weights is None else weights[micro.rows])
        for micro in micros
    ]
    # the last one has a pass: there, processes add up their gradients
    ends = np.linspace(0, len(passes), len(batches) + 1).astype(int)
    parts = [passes[start:end] for start, end in pairwise(ends)]
    return [{**batch, "packed": part} for batch, part in zip(batches, parts, strict=True)]


def _rows(batch: Mapping[str, Any]) -> list[Row]:
    rows = []
    for ids, labels in zip(batch["input_ids"].cpu().numpy(), batch["labels"].cpu().numpy(), strict=True):
        (counted,) = np.nonzero(labels != IGNORE)
        end = int(counted[-1]) + 1
        logp = np.zeros(end, np.float32)
        rows.append(Row(0, 0, int(counted[0]), ids[:end].astype(np.int64), logp, (), agent=0, role=0, trainable=True))
    return rows


def packed_logits(model: Any, inner: Any, pairs: PackedPairs) -> tuple[Tensor, Tensor, Tensor]:
    """`completion_logits` of packed pairs."""
    device = next(inner.parameters()).device
    batch = collate(pairs.rows, device, pairs.trees)
    sizes = torch.tensor([len(row.tokens) - row.prompt for row in pairs.rows])
    index = torch.arange(len(pairs.rows)).repeat_interleave(sizes).to(device)
    return logits_of(model, inner, batch), batch.target, index


def logits_of(model: Any, inner: Any, batch: Batch) -> Tensor:
    """Logits float32 [T, vocabulary] at the states that predict a batch's targets.

    inner: the model itself, in what `model` may have around it for several processes.
    """
    with only_at(inner, batch.row, batch.position):
        how = {"position_ids": batch.place, "attention_mask": batch.seen, "use_cache": False}
        return model(input_ids=batch.tokens, **how).logits[0].float()


def can_share(model: Any) -> bool:
    """Whether the model takes a mask of a tree."""
    config = model.config.get_text_config()
    return config._attn_implementation == "sdpa" and getattr(config, "sliding_window", None) is None
