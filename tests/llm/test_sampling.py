"""Tokens are drawn as the slow way draws them, in float64 over the whole vocabulary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from ghar.errors import BadInput
from ghar.llm.sampling import BLOCK, draw, draw_among


def slowly(logits: torch.Tensor, temperatures: torch.Tensor, draws: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """As the sampler did it before: all in float64."""
    greedy = temperatures == 0
    logp = torch.log_softmax(logits.double() / torch.where(greedy, 1.0, temperatures)[:, None], -1)
    sums = logp.exp().cumsum(-1)
    token = torch.searchsorted(sums, draws[:, None] * sums[:, -1:], right=True).squeeze(1)
    token = token.clamp(max=logits.shape[1] - 1)
    token = torch.where(greedy, logp.argmax(-1), token)
    return token, logp.gather(1, token[:, None]).squeeze(1)


@settings(max_examples=40)
@given(
    seed=st.integers(0, 1 << 30),
    vocabulary=st.sampled_from([2, 7, BLOCK, BLOCK + 1, 5000]),
    spread=st.sampled_from([0.1, 3.0, 40.0]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
def test_the_same_tokens_as_the_slow_way(seed: int, vocabulary: int, spread: float, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = (spread * torch.randn(64, vocabulary, generator=generator)).to(dtype)
    draws = torch.rand(64, generator=generator, dtype=torch.float64)
    temperatures = torch.tensor([0.0, 1.0, 0.7, 1.3] * 16, dtype=torch.float64)
    token, logp = draw(logits, temperatures, draws)
    expected, expected_logp = slowly(logits, temperatures, draws)
    assert (token == expected).float().mean() >= 0.98  # a draw between two ids may fall to either by rounding
    same = token == expected
    assert torch.allclose(logp[same], expected_logp[same], atol=2e-5)


@given(seed=st.integers(0, 1 << 30))
def test_an_impossible_token_is_never_drawn(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.full((32, 2 * BLOCK), -torch.inf)
    possible = torch.randint(0, 2 * BLOCK, (32, 3), generator=generator)
    logits.scatter_(1, possible, torch.randn(32, 3, generator=generator))
    draws = torch.cat([torch.zeros(16), torch.full((16,), 1 - 2**-53, dtype=torch.float64)])
    token, logp = draw(logits, torch.ones(32, dtype=torch.float64), draws.double())
    assert (token[:, None] == possible).any(1).all() and torch.isfinite(logp).all()


@pytest.mark.slow
@given(seed=st.integers(0, 1 << 30), vocabulary=st.sampled_from([9, 900]))
def test_among_allowed_ids_as_among_all_with_the_others_forbidden(seed: int, vocabulary: int) -> None:
    rng = np.random.default_rng(seed)
    logits = torch.tensor(3 * rng.standard_normal((32, vocabulary)), dtype=torch.float32)
    allowed = [sorted(rng.choice(vocabulary, rng.integers(1, 5), replace=False).tolist()) for _ in range(32)]
    restricted = torch.full_like(logits, -torch.inf)
    for row, ids in enumerate(allowed):
        restricted[row, ids] = logits[row, ids]
    temperatures = torch.tensor(rng.choice([0.0, 1.0, 0.5], 32))
    draws = torch.tensor(rng.random(32))
    token, logp = draw_among(logits, allowed, temperatures, draws)
    expected, expected_logp = slowly(restricted, temperatures, draws)
    assert torch.equal(token, expected) and torch.allclose(logp, expected_logp, atol=1e-9)


@pytest.mark.slow
def test_draws_follow_the_distribution() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0, -1.0]]).expand(40_000, 4)
    draws = torch.tensor(np.random.default_rng(0).random(40_000))
    token, _ = draw(logits, torch.ones(40_000, dtype=torch.float64), draws)
    shares = torch.bincount(token, minlength=4) / len(token)
    assert torch.allclose(shares, logits[0].softmax(-1), atol=0.01)


class WrittenDoubles(TorchDispatchMode):
    """Counts the float64 numbers that operations write: double precision over the vocabulary is what takes the time."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for value in result if isinstance(result, tuple | list) else (result,):
            if isinstance(value, torch.Tensor) and value.dtype == torch.float64:
                self.count += value.numel()
        return result


def test_a_hundredth_of_the_work_in_double_precision_at_a_vocabulary_of_152_000() -> None:
    logits, draws = 3 * torch.randn(4, 152_000), torch.rand(4, dtype=torch.float64)
    written = []
    for way in (slowly, draw):
        with WrittenDoubles() as doubles:
            way(logits, torch.ones(4, dtype=torch.float64), draws)
        written.append(doubles.count)
    assert written[0] >= 4 * 152_000 and written[1] < written[0] / 100


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("temperature", [0.0, 1.0, 0.7])
@pytest.mark.parametrize("rows", [1, 6])
def test_logits_that_are_no_numbers_draw_nothing(bad: float, temperature: float, rows: int):
    """A diverged model drew the last id of the vocabulary with log-probability NaN, and training went on with it."""
    logits = torch.zeros(rows, 1500)
    logits[-1, 700] = bad
    heat, draws = torch.full((rows,), temperature, dtype=torch.float64), torch.full((rows,), 0.5, dtype=torch.float64)
    with pytest.raises(BadInput, match="logits are not numbers"):
        draw(logits, heat, draws)
    with pytest.raises(BadInput, match="logits are not numbers"):
        draw_among(logits, [[1, 700, 900]] * rows, heat, draws)
    none = torch.full((1, 8), float("-inf"))
    with pytest.raises(BadInput, match="logits are not numbers"):
        draw(none, heat[:1], draws[:1])
