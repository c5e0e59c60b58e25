"""Attention by a tree's blocks: what its mask says, pair by pair, and the same states and gradients."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.fast import rows as rows_module
from ghar.trainers.rl.fast import tree_mask
from ghar.trainers.rl.fast.rows import Batch, collate, packed
from ghar.trainers.rl.fast.tree_mask import ATTENTION, TreeMask
from tests.trainers.test_trees import CPU, likes
from tests.trainers.tiny import VOCAB, for_two, make_row, perturb, tiny_model


def trees(seed: int, budget: int = 400) -> list[Batch]:
    """Batches of rows that go on from one another; several trees in some, so that there is padding."""
    rows = likes(seed, 9, 12)
    with patch.object(rows_module, "LEAST_SHARED", 1):
        micros = packed(rows, budget)
    batches = [collate([rows[i] for i in micro.rows], CPU, micro.trees) for micro in micros]
    return [batch for batch in batches if batch.seen is not None]


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch):
    """Causal blocks of small trees are halved, too."""
    monkeypatch.setattr(tree_mask, "LONGEST", 6)


def plain(mask: Tensor) -> Tensor:
    return mask.as_subclass(Tensor)


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000))
def test_blocks_are_the_pairs_of_the_mask(seed: int):
    for batch in trees(seed):
        mask = batch.seen
        assert isinstance(mask, TreeMask)
        times = torch.zeros_like(plain(mask), dtype=torch.int64)
        written = torch.zeros(batch.tokens.shape, dtype=torch.int64)
        for block in mask.blocks:
            size = (block.stop - block.start, block.last - block.first)
            own = torch.ones(size, dtype=torch.int64)
            times[block.line, 0, block.start : block.stop, block.first : block.last] += (
                own.tril() if block.causal else own
            )
            written[block.line, block.start : block.stop] += block.causal
        padding = (written == 0)[:, None, :, None]
        assert written.max() == 1 and times.max() == 1
        assert torch.equal(times.bool(), plain(mask) & ~padding)


def states(batch: Batch, seed: int, dtype: torch.dtype) -> list[Tensor]:
    torch.manual_seed(seed)
    lines, length = batch.tokens.shape
    return [torch.randn(lines, 3, length, 8).to(dtype).requires_grad_() for _ in range(3)]


def attended(given: list[Tensor], mask: Tensor, **how: float) -> tuple[Tensor, list[Tensor]]:
    """Attention of query, key and value, and the gradients of a sum that weighs each token that counts its own way."""
    out = ATTENTION(*given, attn_mask=mask, **how)
    counts = plain(mask)[:, 0].sum(-1) > 1  # padding sees itself alone
    counts[:, 0] = True
    weigh = torch.linspace(-1, 1, out.numel()).view(out.shape)
    out = out.float() * counts[:, None, :, None]
    return out.detach(), list(torch.autograd.grad((out * weigh).sum(), given))


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), scale=st.sampled_from([None, 0.3]))
def test_attention_by_blocks_is_that_of_the_mask(seed: int, scale: float | None):
    for batch in trees(seed):
        assert batch.seen is not None
        given, how = states(batch, seed, torch.float32), {} if scale is None else {"scale": scale}
        with patch.object(tree_mask._Blocks, "apply", wraps=tree_mask._Blocks.apply) as called:
            ours = attended(given, batch.seen, **how)
            assert called.call_count == 1
            expected = attended(given, plain(batch.seen), **how)
            assert called.call_count == 1
        torch.testing.assert_close(ours, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("seed", range(6))
def test_in_bfloat16_it_is_as_near_to_the_true_numbers_as_the_mask_is(seed: int):
    for batch in trees(seed):
        assert batch.seen is not None
        given = states(batch, seed, torch.bfloat16)
        exact, slopes = attended([g.detach().double().requires_grad_() for g in given], plain(batch.seen))
        (ours, own), (theirs, other) = attended(given, batch.seen), attended(given, plain(batch.seen))
        for true, one, two in zip((exact, *slopes), (ours, *own), (theirs, *other), strict=True):
            off, limit = ((one.double() - true.double()).norm(), (two.double() - true.double()).norm())
            assert float(off) <= 1.5 * float(limit) + 1e-6


@pytest.mark.parametrize("checkpointing", [False, True])
def test_every_layer_goes_by_blocks_and_recomputes_them(checkpointing: bool):
    record = np.arange(80) % VOCAB
    rows = [make_row(np.concatenate([record, [i + 2] * 9]), 84) for i in range(4)]
    actor = perturb(ActorCritic(tiny_model(), for_two(rank=4, checkpointing=checkpointing)))
    (micro,) = packed(rows, 2000)
    layers = actor.model.get_base_model().config.num_hidden_layers
    with patch.object(tree_mask._Blocks, "apply", wraps=tree_mask._Blocks.apply) as called:
        actor.score([rows[i] for i in micro.rows], True, micro.trees).logp.sum().backward()
    assert called.call_count == (2 * layers - 1 if checkpointing else layers)  # the last is not recomputed


def test_what_blocks_do_not_serve_goes_by_the_mask():
    (batch, *_) = trees(3)
    mask = batch.seen
    assert isinstance(mask, TreeMask)
    given = states(batch, 0, torch.float32)
    with patch.object(tree_mask._Blocks, "apply", side_effect=AssertionError):
        ATTENTION(*(state.double() for state in given), attn_mask=mask)
        ATTENTION(*given, attn_mask=mask, dropout_p=0.1)
        ATTENTION(*given, attn_mask=mask[..., :])  # a slice is a plain mask
        ATTENTION(given[0], given[1][:, :1], given[2][:, :1], attn_mask=mask, enable_gqa=True)
    assert type(mask.clone()) is Tensor and type(mask[:1]) is Tensor
