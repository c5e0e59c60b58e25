"""peft's LoRA layers with less work, and in 16 bits with less memory.

float32: peft computes x W^T + s (x A^T) B^T: with a small model on a CPU the two narrow products, the scaling and the
sum cost a third of the wide one. Here W + s B A, which is small beside x, is formed first. It is formed again for the
backward pass, so that no copy of the weights stays behind.

16 bits with float32 adapters: W + s B A would round the adapter away. Both paths stay, as peft has them. But for the
backward pass peft keeps a float32 copy of x in every layer. Here x itself is kept, which layers that read the same x
share.

Weights, names and files stay peft's.
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
    """peft's layer, and peft's forward wherever there is more than one adapter in force, none, or one in 16 bits."""

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        names = self.active_adapters
        if self.disable_adapters or self.merged or len(names) != 1 or args or kwargs:
            return super().forward(x, *args, **kwargs)
        base, a, b = self.get_base_layer(), self.lora_A[names[0]].weight, self.lora_B[names[0]].weight
        exact = a.dtype == b.dtype == torch.float32 and x.dtype == base.weight.dtype
        # under ZeRO-3 (ds_id) weights are fetched when their own module is called, not when its weights are read
        if hasattr(b, "ds_id") or base.weight.requires_grad or not exact or torch.is_autocast_enabled(x.device.type):
            return super().forward(x)
        how = _MergedLowRank if x.dtype == torch.float32 else _LowRankBeside
        return how.apply(x, base.weight, base.bias, a, b, self.scaling[names[0]])  # type: ignore[return-value]


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


class _LowRankBeside(torch.autograd.Function):
    """x W^T + c + s (x A^T) B^T, of which x, W and c have 16 bits, the rest 32; W and c are frozen.

    Rounded to 16 bits once where peft rounds twice: the gradient of x is summed up in float32.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, a: Tensor, b: Tensor, scaling: float
    ) -> Tensor:
        low = functional.linear(x.float(), a)
        ctx.save_for_backward(x, low, weight, a, b)
        ctx.scaling = scaling
        wide = functional.linear(x, weight, bias)
        out = torch.addmm(wide.view(-1, len(b)).float(), low.view(-1, len(a)), b.T, alpha=scaling)
        return out.to(x.dtype).view(wide.shape)

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        x, low, weight, a, b = ctx.saved_tensors
        slope = above[0].reshape(-1, len(weight))
        exact = slope.float()
        narrow = (exact @ b).mul_(ctx.scaling)
        of_b = (low.reshape(-1, len(a)).T @ exact).T.mul(ctx.scaling)
        del exact
        of_x = None
        if ctx.needs_input_grad[0]:
            of_x = torch.addmm((slope @ weight).float(), narrow, a).to(x.dtype).view(x.shape)
        return of_x, None, None, narrow.T @ x.reshape(-1, x.shape[-1]).float(), of_b, None
