"""Attention over trees of rows in blocks, on a processor.

Given a mask, torch's kernel multiplies every pair of tokens and forgets those that are hidden. What the tokens of a
tree see is a few blocks, whole or causal: here each block is one call of that kernel, and what a token takes from its
blocks is put together by their log-sums, so that states and gradients are those of the mask but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

Array = np.ndarray
ATTENTION = torch.nn.functional.scaled_dot_product_attention
DTYPES = (torch.float32, torch.bfloat16)  # others go by the mask
LONGEST = 256  # tokens of a causal block: of a longer one the kernel reads more of what it hides than halves cost


@dataclass(frozen=True)
class Block:
    """Tokens [start, stop) of a line see its tokens [first, last): all, or (causal) those up to their own place."""

    line: int
    start: int
    stop: int
    first: int
    last: int
    causal: bool = False

    def asking(self, states: Tensor) -> Tensor:
        """Of states [R, ..., L, D], those of the tokens that look."""
        return states[self.line : self.line + 1, :, self.start : self.stop]

    def seen(self, states: Tensor) -> Tensor:
        """Of states [R, ..., L, D], those of the tokens that are looked at."""
        return states[self.line : self.line + 1, :, self.first : self.last]


def blocks_of(paths: Sequence[Array], line: int) -> list[Block]:
    """What the rows of a tree see, each token in one causal block; paths: of each row, where its tokens stand, in the
    order in which they are written."""
    causal: list[Block] = []
    whole: list[Block] = []
    end = 0
    for path in paths:
        old = path[path < end]
        start, stop = end, end + len(path) - len(old)
        if stop == start:
            continue
        if len(causal) == 1 and not whole and len(old) == end:  # goes on behind all there is
            causal = [Block(line, 0, stop, 0, stop, causal=True)]
        else:
            causal.append(Block(line, start, stop, start, stop, causal=True))
            for first, last in _runs(old):
                if whole and (whole[-1].stop, whole[-1].first, whole[-1].last) == (start, first, last):
                    start = whole.pop().start
                whole.append(Block(line, start, stop, first, last))
                start = end
        end = stop
    halves = [half for block in causal for half in _halved(block)]
    return sorted(halves + whole, key=lambda block: not block.causal)


def _halved(block: Block) -> list[Block]:
    """A causal block as shorter ones, and what their tokens see of the halves before theirs."""
    start, stop = block.start, block.stop
    if stop - start <= LONGEST:
        return [block]
    middle = (start + stop) // 2
    early, late = (Block(block.line, a, b, a, b, causal=True) for a, b in ((start, middle), (middle, stop)))
    return [*_halved(early), *_halved(late), Block(block.line, middle, stop, start, middle)]


def _runs(places: Array) -> list[tuple[int, int]]:
    """Places that follow one another, as [first, last)."""
    parts = np.split(places, np.flatnonzero(np.diff(places) != 1) + 1)
    return [(int(part[0]), int(part[-1]) + 1) for part in parts if len(part)]


class TreeMask(Tensor):
    """A mask bool [R, 1, L, L] that knows its blocks: attention on a processor goes by them, all else by the mask.

    Whatever is made of it (a slice, a copy on another device) is a plain mask.
    """

    blocks: tuple[Block, ...]

    @classmethod
    def of(cls, seen: Tensor, blocks: Sequence[Block]) -> TreeMask:
        """The mask `seen` with its blocks, in which each token but those of the padding stands once causally."""
        mask = seen.as_subclass(cls)
        mask.blocks = tuple(blocks)
        return mask

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with torch._C.DisableTorchFunctionSubclass():
            if func is ATTENTION and _in_blocks(*args, **kwargs):
                query, key, value = args
                return _Blocks.apply(query, key, value, kwargs["attn_mask"].blocks, kwargs.get("scale"))
            return func(*args, **kwargs)


def _in_blocks(*states: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, **more: Any) -> bool:
    """Whether this call of attention can go by blocks: one sequence of a known dtype looks at itself on a processor."""
    shapes = {(state.device.type, state.dtype in DTYPES, state.dtype, state.shape) for state in states}
    alike = len(states) == 3 and len(shapes) == 1 and states[0].device.type == "cpu" and states[0].dtype in DTYPES
    plain = not dropout_p and not more.get("is_causal") and not more.get("enable_gqa")
    return alike and plain and isinstance(attn_mask, TreeMask) and attn_mask.shape[-1] == states[0].shape[2]


class _Blocks(torch.autograd.Function):
    """Attention of query, key and value [R, H, L, D] by blocks; nothing is seen, and nothing taken, by padding."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, blocks: tuple[Block, ...], scale: Any) -> Tensor:
        attend = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
        out = torch.zeros_like(query, dtype=torch.float32)
        total = query.new_zeros(query.shape[:-1], dtype=torch.float32)
        for block in blocks:
            given = (block.asking(query), block.seen(key), block.seen(value))
            one, weight = attend(*given, 0.0, block.causal, scale=scale)
            have, held = block.asking(out), block.asking(total)
            if block.causal:  # the first of these tokens
                have.copy_(one)
                held.copy_(weight)
                continue
            both = torch.logaddexp(held, weight)
            have.mul_((held - both).exp_()[..., None]).add_(one * (weight - both).exp_()[..., None])
            held.copy_(both)
        result = out.to(query.dtype)
        ctx.save_for_backward(query, key, value, result, total)
        ctx.blocks, ctx.scale = blocks, scale
        return result

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        (grad,) = grads
        query, key, value, out, total = ctx.saved_tensors
        back = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        sums = [torch.zeros_like(state, dtype=torch.float32) for state in (query, key, value)]
        for block in ctx.blocks:
            given = block.asking(grad), block.asking(query), block.seen(key), block.seen(value), block.asking(out)
            exact = (state.float() for state in given)  # the kernel is quicker so than in 16 bits, in short blocks
            parts = back(*exact, block.asking(total), 0.0, block.causal, scale=ctx.scale)
            places = block.asking(sums[0]), block.seen(sums[1]), block.seen(sums[2])
            for place, part in zip(places, parts, strict=True):
                place.add_(part)
        return (*(part.to(query.dtype) for part in sums), None, None)
