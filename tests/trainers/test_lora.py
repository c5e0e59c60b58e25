"""The fused LoRA layer against peft's own, on values, gradients and everything peft switches."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from peft import LoraConfig, get_peft_model

from ghar.llm.adapter import fold
from ghar.trainers.rl.fast.lora import FusedLinear, fuse


def adapted(bias: bool, seed: int) -> Any:
    """A small network with random adapters."""
    torch.manual_seed(seed)
    network = torch.nn.Sequential(torch.nn.Linear(5, 7, bias=bias), torch.nn.Tanh(), torch.nn.Linear(7, 3, bias=bias))
    model = get_peft_model(network, LoraConfig(r=2, lora_alpha=3, target_modules=["0", "2"]))  # type: ignore[arg-type]
    for name, parameter in model.named_parameters():
        if "lora_" in name:
            parameter.data = torch.randn_like(parameter)
    return model


def both(bias: bool, seed: int) -> tuple[Any, Any]:
    """The same network as peft computes it, and fused."""
    theirs = adapted(bias, seed)
    ours = copy.deepcopy(theirs)
    fuse(ours)
    assert sum(isinstance(m, FusedLinear) for m in ours.modules()) == 2
    return theirs, ours


@settings(max_examples=25)
@given(st.booleans(), st.integers(0, 1000), st.sampled_from([(4, 5), (2, 3, 5), (1, 5)]))
def test_values_and_gradients_are_pefts(bias, seed, shape):
    theirs, ours = both(bias, seed)
    x = torch.randn(shape)
    found = []
    for model in (theirs, ours):
        state = x.clone().requires_grad_()
        out = model(state)
        (out**2).sum().backward()
        found.append([out, state.grad, *(p.grad for p in model.parameters() if p.requires_grad)])
    assert all(torch.allclose(a, b, atol=1e-4, rtol=1e-4) for a, b in zip(*found, strict=True))
    assert [n for n, p in theirs.named_parameters() if p.grad is not None] == [
        n for n, p in ours.named_parameters() if p.grad is not None
    ]


@settings(max_examples=25)
@given(st.booleans(), st.integers(0, 1000), st.sampled_from([(4, 5), (2, 3, 5), (1, 5)]))
def test_a_layer_of_16_bits_rounds_its_two_sums_alone(bias, seed, shape):
    """Against the formula in float64: a value is off by one rounding of the wide product and one of the sum; gradients
    of adapters, which are float32, by nothing more than float32 is."""
    _, ours = both(bias, seed)
    layer = ours.base_model.model[0]
    layer.base_layer.to(torch.bfloat16)
    x, slope = torch.randn(shape).bfloat16().requires_grad_(), torch.randn(*shape[:-1], 7).bfloat16()
    out = layer(x)
    out.backward(slope)
    a, b = (part["default"].weight for part in (layer.lora_A, layer.lora_B))
    exact = {name: p.detach().double() for name, p in (("x", x), ("w", layer.base_layer.weight), ("a", a), ("b", b))}
    flat, above = exact["x"].reshape(-1, 5), slope.double().reshape(-1, 7)
    wide = flat @ exact["w"].T + (layer.base_layer.bias.double() if bias else 0)
    value = wide + layer.scaling["default"] * flat @ exact["a"].T @ exact["b"].T
    back = above @ exact["w"]
    of_x = back + layer.scaling["default"] * above @ exact["b"] @ exact["a"]
    assert x.grad is not None and a.grad is not None and b.grad is not None
    for own, first, whole in ((out, wide, value), (x.grad, back, of_x)):
        bound = 2**-8 * (first.abs() + whole.abs()) + 1e-5
        assert ((own.detach().double().reshape(whole.shape) - whole).abs() <= bound).all()
    narrow = layer.scaling["default"] * above @ exact["b"]
    assert torch.allclose(a.grad.double(), narrow.T @ flat, rtol=1e-5, atol=1e-5)
    of_b = layer.scaling["default"] * above.T @ flat @ exact["a"].T
    assert torch.allclose(b.grad.double(), of_b, rtol=1e-5, atol=1e-5)


def test_16_bits_keep_no_copy_in_32():
    """What the backward pass keeps of the input: the tensor itself, once for all layers that read it."""
    layers = torch.nn.ModuleList(torch.nn.Linear(64, 32, bias=False).bfloat16() for _ in range(3))
    network: Any = torch.nn.ModuleDict({"layers": layers})
    model = get_peft_model(network, LoraConfig(r=2, target_modules=["0", "1", "2"]))
    fuse(model)
    x, kept = torch.randn(1000, 64).bfloat16().requires_grad_(), {}
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.setdefault(t.data_ptr(), t), lambda t: t):
        outs = [layer(x) for layer in network["layers"]]
    assert len(outs) == 3
    large = [t for t in kept.values() if t.numel() == x.numel()]
    assert [t.data_ptr() for t in large] == [x.data_ptr()] and large[0].dtype == torch.bfloat16


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_switched_off_merged_and_of_another_dtype(dtype):
    theirs, ours = both(True, 0)
    x = torch.randn(3, 5).to(dtype)
    if dtype != torch.float32:
        for model in (theirs, ours):
            for name, parameter in model.named_parameters():
                parameter.data = parameter.data if "lora_" in name else parameter.data.to(dtype)
    with theirs.disable_adapter(), ours.disable_adapter():
        assert torch.equal(theirs(x), ours(x))
    assert torch.allclose(theirs(x), ours(x), atol=1e-5)
    for model in (theirs, ours):
        model.base_model.merge_adapter()
    assert torch.equal(theirs(x), ours(x))


def test_state_and_copies_stay_pefts():
    theirs, ours = both(False, 0)
    assert list(theirs.state_dict()) == list(ours.state_dict())
    assert type(copy.deepcopy(ours).base_model.model[0]) is FusedLinear


def test_folding_into_16_bits_rounds_once():
    model = adapted(bias=False, seed=3)
    inner = model.base_model.model
    exact = {}
    for name in ("0", "2"):
        layer = getattr(inner, name)
        layer.base_layer.weight.data = layer.base_layer.weight.data.bfloat16()
        delta = layer.lora_B["default"].weight @ layer.lora_A["default"].weight * layer.scaling["default"]
        exact[name] = (layer.base_layer.weight.float() + delta).bfloat16()
    before = {layer: weight for layer, weight in fold(model, "default")}
    for name, weight in exact.items():
        layer = getattr(inner, name)
        assert torch.equal(layer.base_layer.weight, weight) and not torch.equal(before[layer], weight)
    assert all(m.merged for m in before)
