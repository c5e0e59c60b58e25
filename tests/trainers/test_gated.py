"""A gated feed-forward that keeps two tensors against the one of transformers: the same bits, less memory."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoConfig, AutoModelForCausalLM

from ghar.trainers.activation_memory import LiveBytes
from ghar.trainers.rl.fast.gated import GATED, keep_less
from ghar.trainers.rl.fast.lora import fuse

KINDS = {"llama": "LlamaMLP", "mistral": "MistralMLP", "qwen2": "Qwen2MLP", "qwen3": "Qwen3MLP", "gemma": "GemmaMLP",
         "gemma2": "Gemma2MLP", "gemma3_text": "Gemma3MLP", "granite": "GraniteMLP"}  # fmt: skip


def tiny(kind: str, dtype: torch.dtype = torch.float32, width: int = 48) -> Any:
    """Two layers with random weights."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        kind, hidden_size=16, intermediate_size=width, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8, vocab_size=50, pad_token_id=0,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config, dtype=dtype).eval()


def gradients(model: Any, ids: torch.Tensor) -> list[torch.Tensor]:
    """Logits, and the gradient of each weight that is trained."""
    logits = model(input_ids=ids, use_cache=False).logits
    logits.float().pow(2).sum().backward()
    return [logits.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def adapted(model: Any) -> Any:
    lora = LoraConfig(r=2, lora_alpha=4, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(model, lora)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.1)
    fuse(model)
    return model


def test_every_kind_is_tested():
    assert sorted(KINDS.values()) == sorted(GATED)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("lora", [False, True])
def test_the_numbers_are_those_of_transformers(kind: str, lora: bool, dtype: torch.dtype):
    theirs = tiny(kind, dtype)
    assert any(type(module).__name__ == KINDS[kind] for module in theirs.modules())
    if lora:
        theirs = adapted(theirs)
    ours, ids = copy.deepcopy(theirs), torch.randint(1, 50, (2, 7))
    keep_less(ours)
    for own, other in zip(gradients(ours, ids), gradients(theirs, ids), strict=True):
        assert torch.equal(own, other)


def test_two_tensors_are_kept_and_not_four():
    """Bytes that a pass of two layers holds before its backward pass: less the two products and the two activations."""
    ids, held = torch.randint(1, 50, (4, 100)), []
    for less in (False, True):
        model = tiny("llama", width=4000)
        keep_less(model, less)
        with LiveBytes() as live:
            live.overlook(model.parameters())
            loss = model(input_ids=ids, use_cache=False).logits.sum()
            held.append(live.now)
        loss.backward()
    one = 400 * 4000 * 4
    assert held[0] - held[1] == pytest.approx(2 * 2 * one, rel=0.02)


def test_a_copy_computes_with_its_own_weights():
    model = tiny("llama")
    keep_less(model)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(0.5)
    ids = torch.randint(1, 50, (1, 5))
    assert not torch.equal(model(input_ids=ids).logits, twin(input_ids=ids).logits)


def test_it_can_be_undone_and_stays_out_of_what_is_written():
    model = tiny("llama")
    names, kinds = list(model.state_dict()), [type(module) for module in model.modules()]
    keep_less(model)
    keep_less(model)
    assert list(model.state_dict()) == names and [type(module) for module in model.modules()] != kinds
    twin, ids = pickle.loads(pickle.dumps(model)), torch.randint(1, 50, (1, 5))
    assert torch.equal(model(input_ids=ids).logits, twin(input_ids=ids).logits)
    keep_less(model, less=False)
    assert [type(module) for module in model.modules()] == kinds


def test_a_model_that_is_dropped_is_gone_at_once():
    """Weights that wait for the garbage collector, which counts objects and not bytes, stand beside the next ones."""
    model = tiny("llama")
    keep_less(model)
    weights = [weakref.ref(layer.mlp.down_proj.weight) for layer in model.model.layers]
    gc.disable()
    try:
        del model
        assert not any(weight() is not None for weight in weights)
    finally:
        gc.enable()


def test_a_second_derivative_is_refused():
    model = tiny("llama")
    keep_less(model)
    loss = model(input_ids=torch.randint(1, 50, (1, 5)), use_cache=False).logits.pow(2).sum()
    first = torch.autograd.grad(loss, model.model.layers[0].mlp.gate_proj.weight, create_graph=True)[0]
    with pytest.raises(RuntimeError, match="once_differentiable"):
        first.sum().backward()
