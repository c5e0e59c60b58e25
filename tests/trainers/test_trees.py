"""Rows that begin alike, written as one tree: the same scores and gradients as apart, and fewer tokens."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.fast import rows as rows_module
from ghar.trainers.rl.fast.rows import collate, packed
from ghar.trainers.rl.trajectory import Row
from tests.trainers.tiny import VOCAB, for_two, make_row, perturb, tiny_model

CPU = torch.device("cpu")


def likes(seed: int, count: int, prompt: int) -> list[Row]:
    """Rows each of which goes on from somewhere in an earlier one, or begins anew; some are restricted."""
    rng = np.random.default_rng(seed)
    found = [make_row(rng.integers(2, VOCAB, prompt + 2), prompt)]
    while len(found) < count:
        old = found[rng.integers(len(found))].tokens
        kept = int(rng.integers(0, len(old) + 1))
        tokens = np.concatenate([old[:kept], rng.integers(2, VOCAB, max(2, int(rng.integers(0, 9)) + prompt - kept))])
        reply = int(rng.integers(1, 3))
        choices = () if rng.random() < 0.7 else (tuple(tokens[-reply:].tolist()), (3,) * (reply + 1))
        found.append(make_row(tokens, len(tokens) - reply, int(rng.integers(2)), choices))
    return found


def scored(actor: ActorCritic, rows: list[Row], share: bool, budget: int) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Columns of scores, by row, and the gradient of a sum that weighs each token its own way."""
    actor.zero_grad()
    pieces: list[list[torch.Tensor]] = [[] for _ in rows]
    for micro in packed(rows, budget, share):
        scores = actor.score([rows[i] for i in micro.rows], True, micro.trees)
        columns = torch.stack([scores.logp, scores.values, scores.entropy])
        sizes = [len(rows[i].tokens) - rows[i].prompt for i in micro.rows]
        for i, own in zip(micro.rows, columns.split(sizes, 1), strict=True):
            pieces[i] = [own]
    flat = torch.cat([own for piece in pieces for own in piece], 1)
    (flat * torch.linspace(-1, 1, flat.numel()).view(flat.shape)).sum().backward()
    grads = [p.grad.flatten() for p in actor.trainable_parameters() if p.grad is not None]
    return list(flat.detach()), torch.cat(grads)


@pytest.mark.slow
@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), finetune=st.sampled_from(["lora", "full"]), budget=st.sampled_from([60, 400]))
def test_a_tree_is_its_rows(seed: int, finetune: str, budget: int):
    actor = perturb(ActorCritic(tiny_model(), for_two(finetune, rank=4)))  # type: ignore[arg-type]
    rows = likes(seed, 9, 12)
    with patch.object(rows_module, "LEAST_SHARED", 1):
        together, slope = scored(actor, rows, True, budget)
    apart, expected = scored(actor, rows, False, budget)
    for a, b in zip(together, apart, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(slope, expected, atol=1e-5 * float(expected.abs().max()), rtol=1e-5)


def test_turns_over_one_record_read_it_once():
    record = np.arange(2000) % VOCAB
    rows = [make_row(np.concatenate([record, [i + 2] * 100]), 2090) for i in range(8)]
    (micro,) = packed(rows, 16_384)
    assert micro.trees == (8,) and sorted(micro.rows) == list(range(8))
    batch = collate([rows[i] for i in micro.rows], CPU, micro.trees)
    assert batch.tokens.shape == (1, 2800)
    assert len(packed(rows, 2500)) > 1  # the budget counts what a tree has


@pytest.mark.parametrize("own", [np.arange(60), np.arange(300) % 50 + 70])
def test_what_is_short_or_mostly_its_own_stays_apart(own: np.ndarray):
    """Too little is shared to pay for a mask, or less than half: batches are those of rows apart."""
    rows = [make_row(np.concatenate([own[:60], own[60:] + i, [i] * 9]), 62) for i in range(5)]
    assert packed(rows, 2000) == packed(rows, 2000, share=False)
    assert collate(rows, CPU).seen is None


def test_a_window_of_attention_or_another_kernel_keeps_rows_apart():
    actor = ActorCritic(tiny_model(), for_two(rank=4))
    config = actor.model.get_base_model().config
    assert actor.shares
    config._attn_implementation = "eager"
    assert not actor.shares
    config._attn_implementation, config.sliding_window = "sdpa", 16
    assert not actor.shares
