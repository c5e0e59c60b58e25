"""Optimiser state that ZeRO cut for one number of processes, cut again for another.

ZeRO-1 and 2 lay the weights of a parameter group end to end, pad them, and cut this vector into as many equal parts as
there are processes. ZeRO-3 cuts each weight alone, and a process lays its pieces end to end. Float32 weights and the
optimiser's moments are cut alike, so that a part of another number of processes is copied together from theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

ZeroOptimizer: TypeAlias = Any  # DeepSpeed's, which has no types: of stage 1 and 2, or of stage 3


@dataclass(frozen=True)
class ShardLayout:
    """How the processes hold their parts. groups: sizes of the whole weights behind each flat vector of a process;
    lengths: of these vectors; by_weight: whether each weight is cut alone (ZeRO-3)."""

    groups: tuple[tuple[int, ...], ...]
    lengths: tuple[int, ...]
    processes: int
    by_weight: bool


def layout_of(outer: ZeroOptimizer, by_weight: bool, processes: int) -> ShardLayout:
    """Return how DeepSpeed's optimiser cuts its weights for so many processes."""
    weights = outer.fp16_groups if by_weight else outer.bit16_groups
    groups = tuple(tuple(p.ds_numel if by_weight else p.numel() for p in group) for group in weights)
    return ShardLayout(groups, tuple(len(flat) for flat in masters_of(outer, by_weight)), processes, by_weight)


def masters_of(outer: ZeroOptimizer, by_weight: bool) -> list[Tensor]:
    """Return the float32 vectors that this process's part of DeepSpeed's optimiser works on."""
    return outer.fp32_partitioned_groups_flat if by_weight else outer.single_partition_of_fp32_groups


def reshard(parts: Sequence[dict[str, Any]], layout: ShardLayout, own: dict[str, Any], rank: int) -> dict[str, Any]:
    """Return the state of process `rank` from the states of all processes that saved (`DeepSpeedLearner.state`).

    layout: of this process now; own: its torch optimiser's `state_dict` now, whose groups say where a vector belongs.
    """
    before = [part["optimizer"]["state"] for part in parts]
    count = len(parts[0]["masters"])
    saved = [before[0][i] for i in sorted(before[0])]
    state: dict[int, dict[str, Any]] = {i: {} for i in range(len(layout.lengths))} if saved else {}
    for name in saved[0] if saved else ():
        if saved[0][name].dim() == 0:  # the number of steps
            for values in state.values():
                values[name] = saved[0][name].clone()
            continue
        vectors = [[held[i][name] for i in range(count)] for held in before]
        for i, vector in enumerate(_cut(vectors, layout, rank)):
            state[i][name] = vector
    groups = [
        {**old, "params": new["params"]}
        for old, new in zip(parts[0]["optimizer"]["param_groups"], own["param_groups"], strict=True)
    ]
    masters = _cut([part["masters"] for part in parts], layout, rank)
    return {"optimizer": {"state": state, "param_groups": groups}, "masters": masters}


def _cut(parts: Sequence[Sequence[Tensor]], layout: ShardLayout, rank: int) -> list[Tensor]:
    """This process's flat vectors, from those of each process that saved."""
    if not layout.by_weight:
        return [
            _piece(torch.cat([vectors[i] for vectors in parts])[: sum(sizes)], length, rank)
            for i, (sizes, length) in enumerate(zip(layout.groups, layout.lengths, strict=True))
        ]
    rows, first = [torch.cat(list(vectors)) for vectors in parts], 0
    cuts = []
    for sizes in layout.groups:
        pieces = []
        for size in sizes:
            width = -(-size // len(parts))
            whole = torch.cat([row[first : first + width] for row in rows])[:size]
            pieces.append(_piece(whole, -(-size // layout.processes), rank))
            first += width
        cuts.append(torch.cat(pieces))
    return cuts


def _piece(whole: Tensor, length: int, rank: int) -> Tensor:
    """The piece of `length` that process `rank` has of a vector, zeros behind its end."""
    piece = whole[rank * length : (rank + 1) * length]
    return torch.nn.functional.pad(piece, (0, length - len(piece)))
