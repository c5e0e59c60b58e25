"""State of ZeRO for another number of processes, against weights cut directly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ghar.trainers.rl.resharding import ShardLayout, reshard

SIZES = st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=4), min_size=1, max_size=3)


def weights(sizes: list[list[int]], seed: int) -> list[list[Tensor]]:
    """Random weights of each parameter group."""
    rng = np.random.default_rng(seed)
    return [[torch.as_tensor(rng.normal(size=n)) for n in group] for group in sizes]


def held(groups: list[list[Tensor]], processes: int, rank: int, by_weight: bool) -> list[Tensor]:
    """A process's flat vectors, as DeepSpeed cuts them."""
    found = []
    for group in groups:
        if by_weight:
            widths = [-(-len(w) // processes) for w in group]
            padded = [torch.cat([w, torch.zeros(n * processes - len(w))]) for w, n in zip(group, widths, strict=True)]
            found.append(torch.cat([w[rank * n : (rank + 1) * n] for w, n in zip(padded, widths, strict=True)]))
        else:
            whole = torch.cat(group)
            whole = torch.cat([whole, torch.zeros(-len(whole) % (2 * processes))])
            found.append(whole.chunk(processes)[rank])
    return found


def state(kinds: dict[str, list[list[Tensor]]], processes: int, rank: int, by_weight: bool) -> dict[str, Any]:
    """`DeepSpeedLearner.state` of a process."""
    masters, first, second = (held(kinds[name], processes, rank, by_weight) for name in ("w", "m", "v"))
    moments = {
        i: {"step": torch.tensor(4.0), "exp_avg": m, "exp_avg_sq": v}
        for i, (m, v) in enumerate(zip(first, second, strict=True))
    }
    groups = [{"lr": 0.5 + i, "params": [i]} for i in range(len(masters))]
    return {"optimizer": {"state": moments, "param_groups": groups}, "masters": masters}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("by_weight", [False, True])
@given(SIZES, st.integers(1, 4), st.integers(1, 4), st.integers(0, 99))
def test_each_process_gets_what_it_would_have_cut_itself(
    by_weight: bool, sizes: list[list[int]], before: int, now: int, seed: int
):
    kinds = {name: weights(sizes, seed + i) for i, name in enumerate("wmv")}
    parts = [state(kinds, before, rank, by_weight) for rank in range(before)]
    for rank in range(now):
        wanted = state(kinds, now, rank, by_weight)
        lengths = tuple(len(flat) for flat in wanted["masters"])
        layout = ShardLayout(tuple(map(tuple, sizes)), lengths, now, by_weight)
        assert same(reshard(parts, layout, wanted["optimizer"], rank), wanted)


def test_before_the_first_step_there_are_no_moments():
    part = state({name: weights([[3, 2]], 0) for name in "wmv"}, 1, 0, True)
    part["optimizer"]["state"] = {}
    found = reshard([part], ShardLayout(((3, 2),), (4,), 2, True), part["optimizer"], 1)
    assert found["optimizer"]["state"] == {} and len(found["masters"][0]) == 2 + 1
