"""peft's LoRA layers with one product over their input instead of three.

peft computes x W^T + s (x A^T) B^T: with a small model on a CPU the two narrow products, the scaling and the sum cost
a third of the wide one. Here W + s B A, which is small beside x, is formed first. It is formed again for the backward
pass, so that no copy of the weights stays behind. Weights, names and files stay peft's.
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
    """peft's layer, and peft's forward wherever there is more than one adapter in force, none, or less than float32,
    in which W + s B A would round the adapter away."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        names = self.active_adapters
        if self.disable_adapters or self.merged or len(names) != 1 or args or kwargs:
            return super().forward(x, *args, **kwargs)
        base, a, b = self.get_base_layer(), self.lora_A[names[0]].weight, self.lora_B[names[0]].weight
        exact = all(t.dtype == torch.float32 for t in (x, base.weight, a, b))
        # under ZeRO-3 (ds_id) weights are fetched when their own module is called, not when its weights are read
        if hasattr(b, "ds_id") or base.weight.requires_grad or not exact:
            return super().forward(x)
        return _MergedLowRank.apply(x, base.weight, base.bias, a, b, self.scaling[names[0]])  # type: ignore[return-value]


class _MergedLowRank(torch.autograd.Function):
    """x (W + s B A)^T + c; W and c are frozen."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scaling: float
    ) -> Tensor:
        ctx.save_for_backward(x, weight, a, b)
        ctx.scaling = scaling
        return functional.linear(x, torch.addmm(weight, b, a, alpha=scaling), bias)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, a, b = ctx.saved_tensors
        slope, flat = above[0].reshape(-1, len(weight)), x.reshape(-1, x.shape[-1])
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = (slope @ torch.addmm(weight, b, a, alpha=ctx.scaling)).view(x.shape)
        of_a = (slope @ b).mul_(ctx.scaling).T @ flat
        of_b = ((flat @ a.T).T @ slope).T.mul(ctx.scaling)
        return of_x, None, None, of_a, of_b, None
