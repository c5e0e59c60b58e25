"""The gated feed-forward of Llama's kind, down(act(gate x) * up x), with two tensors kept for the backward pass.

autograd keeps four: gate x, act(gate x), up x and their product, each some times as wide as the states, most of what a
layer keeps. All follow from gate x and up x at the cost of one activation function, small beside the three products.
Numbers are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

# whose feed-forward is: down_proj(act_fn(gate_proj(x)) * up_proj(x))
GATED = ("LlamaMLP", "MistralMLP", "Qwen2MLP", "Qwen3MLP", "GemmaMLP", "Gemma2MLP", "Gemma3MLP", "GraniteMLP")


def keep_less(model: nn.Module, less: bool = True) -> None:
    """Let every gated feed-forward of `model` keep two tensors. less: False for a model whose layers are recomputed,
    which keep none; it undoes an earlier call."""
    for module in model.modules():
        if type(module).__name__ in GATED:
            module.__dict__.pop("forward", None)
            if less:
                module.__dict__["forward"] = partial(_forward, module)


def _forward(layer: Any, x: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return type(layer).forward(layer, x)
    gate, up = layer.gate_proj(x), layer.up_proj(x)
    if not gate.requires_grad or not up.requires_grad:
        return layer.down_proj(layer.act_fn(gate) * up)
    product = _Product.apply(gate, up, layer.act_fn)
    again = partial(_again, gate.detach(), up.detach(), layer.act_fn)
    with torch.autograd.graph.saved_tensors_hooks(partial(_packed, _storage(product), again), _unpacked):
        return layer.down_proj(product)


class _Product(torch.autograd.Function):
    """act(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, act: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.act = act
        return act(gate) * up

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        gate, up = (tensor.detach().requires_grad_() for tensor in ctx.saved_tensors)
        with torch.enable_grad():
            product = ctx.act(gate) * up
        return *torch.autograd.grad(product, (gate, up), above[0]), None


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata


def _again(gate: Tensor, up: Tensor, act: Callable[[Tensor], Tensor]) -> Tensor:
    with torch.no_grad():
        return act(gate) * up


def _packed(product: int, again: Callable[[], Tensor], kept: Tensor) -> Tensor | Callable[[], Tensor]:
    """What stands for `kept`: where it is a view of the product, how to make it again."""
    if _storage(kept) != product:
        return kept
    shape, stride, offset = kept.shape, kept.stride(), kept.storage_offset()
    return lambda: again().as_strided(shape, stride, offset)


def _unpacked(kept: Tensor | Callable[[], Tensor]) -> Tensor:
    return kept if isinstance(kept, Tensor) else kept()
