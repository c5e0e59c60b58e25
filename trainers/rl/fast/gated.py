"""The gated feed-forward of Llama's kind, down(act(gate x) * up x), with two tensors kept for the backward pass.

autograd keeps four: gate x, act(gate x), up x and their product, each some times as wide as the states, most of what a
layer keeps. All follow from gate x and up x at the cost of one activation function, small beside the three products.
Numbers are the same to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# whose feed-forward is: down_proj(act_fn(gate_proj(x)) * up_proj(x))
GATED = ("LlamaMLP", "MistralMLP", "Qwen2MLP", "Qwen3MLP", "GemmaMLP", "Gemma2MLP", "Gemma3MLP", "GraniteMLP")


def keep_less(model: nn.Module, less: bool = True) -> None:
    """Let every gated feed-forward of `model` keep two tensors. less: False for a model whose layers are recomputed,
    which keep none; it undoes an earlier call."""
    module: Any
    for module in model.modules():
        own = type(module)
        plain = own.__bases__[1] if isinstance(module, _KeepsLess) else own
        if plain.__name__ in GATED:
            module.__class__ = _lessened(plain) if less else plain  # the same object, found under its name


class _KeepsLess:
    """Stands before a feed-forward of transformers among the bases of a class."""

    def forward(self: Any, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled():
            return super().forward(x)  # type: ignore[misc]
        gate, up = self.gate_proj(x), self.up_proj(x)
        if not gate.requires_grad or not up.requires_grad:
            return self.down_proj(self.act_fn(gate) * up)
        product: Any = _Product.apply(gate, up, self.act_fn)
        again = partial(_again, gate.detach(), up.detach(), self.act_fn)
        with torch.autograd.graph.saved_tensors_hooks(partial(_packed, _storage(product), again), _unpacked):
            return self.down_proj(product)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle by the class of transformers: this one is made while a program runs."""
        return _empty, (type(self).__bases__[1],), self.__dict__


@cache
def _lessened(plain: Any) -> Any:
    return type(plain.__name__, (_KeepsLess, plain), {})


def _empty(plain: Any) -> Any:
    lessened = _lessened(plain)
    return lessened.__new__(lessened)


class _Product(torch.autograd.Function):
    """act(gate) * up."""

    @staticmethod
    def forward(ctx: Any, gate: Tensor, up: Tensor, act: Callable[[Tensor], Tensor]) -> Tensor:
        ctx.save_for_backward(gate, up)
        ctx.act = act
        return act(gate) * up

    @staticmethod
    @once_differentiable
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
