"""peft's LoRA layers with one pass over their output instead of three.

peft computes x W^T, then adds s (x A^T) B^T: a product, a scaled copy and a sum, each as large as the output. With a
small model on a CPU they take as long as the products. Here the second product is added where the first one stands,
and the factor s goes onto the narrow side, forward and backward. Weights, names and files stay peft's.
"""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor
from torch.nn import functional


def fuse(model: Any) -> None:
    """Let every LoRA layer of a linear one compute so."""
    for module in model.modules():
        if type(module) is Linear:
            module.__class__ = FusedLinear  # the same object: peft keeps finding it under its name


class FusedLinear(Linear):
    """peft's layer, and peft's forward wherever there is more than one adapter in force, none, or a cast."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        names = self.active_adapters
        if self.disable_adapters or self.merged or len(names) != 1 or args or kwargs:
            return super().forward(x, *args, **kwargs)
        base, a, b = self.get_base_layer(), self.lora_A[names[0]].weight, self.lora_B[names[0]].weight
        # under ZeRO-3 (ds_id) weights are fetched when their own module is called, not when its weights are read
        if hasattr(b, "ds_id") or base.weight.requires_grad or not x.dtype == base.weight.dtype == a.dtype == b.dtype:
            return super().forward(x)
        return _FusedLowRank.apply(x, base.weight, base.bias, a, b, self.scaling[names[0]])  # type: ignore[return-value]


class _FusedLowRank(torch.autograd.Function):
    """x W^T + c + s (x A^T) B^T; W and c are frozen."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scaling: float
    ) -> Tensor:
        flat = x.reshape(-1, x.shape[-1])
        low = flat @ a.T
        out = functional.linear(flat, weight, bias).addmm_(low, b.T, alpha=scaling)
        ctx.save_for_backward(flat, low, weight, a, b)
        ctx.shape, ctx.scaling = x.shape, scaling
        return out.view(*x.shape[:-1], len(weight))

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        flat, low, weight, a, b = ctx.saved_tensors
        slope = above[0].reshape(-1, len(weight))
        low_slope = (slope @ b).mul_(ctx.scaling)
        of_x = (slope @ weight).addmm_(low_slope, a).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return of_x, None, None, low_slope.T @ flat, (low.T @ slope).T.mul(ctx.scaling), None
