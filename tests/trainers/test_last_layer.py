"""The shortened last layer against the whole model: states, gradients, and the model left as it was."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from ghar.trainers.rl.fast.last_layer import PLAIN, only_at, trunk_of

SHAPE = {
    "vocab_size": 40, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 4, "max_position_embeddings": 64, "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
BUILDS: dict[str, tuple[Any, Any]] = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
    "gemma2": (Gemma2Config, Gemma2ForCausalLM),  # has more norms in a layer
}


def make(build: str) -> Any:
    config, model = BUILDS[build]
    torch.manual_seed(0)
    return model(config(**SHAPE, attn_implementation="sdpa")).eval()


def gradients(model: Any) -> list[torch.Tensor]:
    found = [torch.zeros_like(p) if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad(set_to_none=True)
    return found


def some_tokens(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Ids [3, 9], and rows and positions of a random part of them, at least one."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(2, 40, (3, 9), generator=generator)
    wanted = torch.rand(3, 9, generator=generator) < 0.3
    wanted[seed % 3, seed % 9] = True
    row, position = wanted.nonzero(as_tuple=True)
    return ids, row, position


@pytest.mark.slow
@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("build", BUILDS)
def test_states_and_gradients_are_those_of_the_whole_model(build: str, checkpointing: bool) -> None:
    model = make(build)
    assert (type(trunk_of(model).layers[-1]).__name__ in PLAIN) == (build != "gemma2")
    if checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.train()  # no dropout in these shapes

    @settings(max_examples=4)
    @given(st.integers(0, 10_000), st.booleans())
    def check(seed: int, padded: bool) -> None:
        ids, row, position = some_tokens(seed)
        mask = torch.ones_like(ids)
        if padded:
            mask[0, :2] = 0
            row, position = row[(row > 0) | (position > 1)], position[(row > 0) | (position > 1)]
        whole = model(input_ids=ids, attention_mask=mask, use_cache=False).logits[row, position]
        (whole**2).sum().backward()
        wanted = gradients(model)
        with only_at(model, row, position):
            part = model(input_ids=ids, attention_mask=mask, use_cache=False).logits
        assert part.shape == (1, len(row), 40)
        torch.testing.assert_close(part[0], whole, atol=1e-5, rtol=1e-4)
        (part**2).sum().backward()
        for one, other in zip(gradients(model), wanted, strict=True):
            torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-3)

    check()


def test_the_model_is_left_as_it_was() -> None:
    model = make("qwen2")
    layer = trunk_of(model).layers[-1]
    before = dict(layer.__dict__)
    ids, row, position = some_tokens(1)
    whole = model(input_ids=ids).logits
    with pytest.raises(RuntimeError, match="stop"), only_at(model, row, position):
        raise RuntimeError("stop")
    assert layer.__dict__ == before and not layer.self_attn.o_proj._forward_pre_hooks
    assert torch.equal(model(input_ids=ids).logits, whole)
