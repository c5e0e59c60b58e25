"""From rows (replies in their contexts) to the padded micro-batches a forward pass takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from ghar.llm.constraint import allowed_tokens
from trainers.rl.trajectory import Row


@dataclass(frozen=True)
class Batch:
    """Rows padded on the right, and where their T completion tokens are predicted from.

    tokens: int64 [R, L]; row, position: int64 [T], the state that predicts each token (one before it);
    target: int64 [T]; agent: int64 [T], index of the acting agent; allowed: int64 [T, K] ids the token was chosen
    from (repeated to fill a line), or None when no reply was restricted; restricted: bool [T], which lines of it count.
    """

    tokens: Tensor
    row: Tensor
    position: Tensor
    target: Tensor
    agent: Tensor
    allowed: Tensor | None
    restricted: Tensor


def micro_batches(lengths: Sequence[int], token_budget: int) -> list[list[int]]:
    """Group rows of similar length so that rows x longest row (padding counts) stays within `token_budget`.

    Returns lists of row indices, longest rows first, ties in the given order. A row longer than the budget is alone.
    """
    batches: list[list[int]] = []
    longest = 0
    for i in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        if batches and (len(batches[-1]) + 1) * longest <= token_budget:
            batches[-1].append(i)
        else:
            batches.append([i])
            longest = lengths[i]
    return batches


def collate(rows: Sequence[Row], device: torch.device) -> Batch:
    """Pad `rows` to one batch. ValueError when a row has no prompt or left its choices."""
    lengths = np.array([len(row.tokens) for row in rows])
    tokens = np.zeros((len(rows), lengths.max()), np.int64)
    where: list[tuple[np.ndarray, ...]] = []
    allowed: list[tuple[int, ...]] = []
    for i, row in enumerate(rows):
        if row.prompt < 1:
            raise ValueError(f"row {row.index} has no prompt: nothing predicts its first token")
        tokens[i, : lengths[i]] = row.tokens
        at = np.arange(row.prompt, lengths[i])
        where.append((np.full_like(at, i), at - 1, row.tokens[at], np.full_like(at, row.agent)))
        allowed += allowed_ids(row)
    row_index, position, target, agent = (
        torch.as_tensor(np.concatenate(c), device=device) for c in zip(*where, strict=True)
    )
    width = max(map(len, allowed), default=0)
    padded = [ids + ids[:1] * (width - len(ids)) if ids else (0,) * width for ids in allowed]
    return Batch(
        tokens=torch.as_tensor(tokens, device=device),
        row=row_index,
        position=position,
        target=target,
        agent=agent,
        allowed=torch.tensor(padded, device=device) if width else None,
        restricted=torch.tensor([bool(ids) for ids in allowed], dtype=torch.bool, device=device),
    )


def allowed_ids(row: Row) -> list[tuple[int, ...]]:
    """For each completion token the ids it was chosen from, () when free: exactly the engine's restriction."""
    if not row.choice_ids:
        return [()] * (len(row.tokens) - row.prompt)
    reply = tuple(int(t) for t in row.tokens[row.prompt :])
    steps = [_allowed(row.choice_ids, reply[:n]) for n in range(len(reply))]
    for n, ids in enumerate(steps):
        if reply[n] not in ids:
            raise ValueError(f"token {n} of a restricted reply is {reply[n]}, allowed were {ids}; reply {reply}")
    return steps


_allowed = lru_cache(maxsize=8192)(allowed_tokens)
