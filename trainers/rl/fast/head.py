"""Log-probability and entropy of tokens from the trunk's states: the language-model head, a few positions at a time.

Over a vocabulary of V, logits are the largest arrays of a training step. While the head is frozen (LoRA), the gradient
of log p(target) with respect to a state is W[target] - Σ_v p_v W_v, which is known as soon as p is: it is computed in
the forward pass, and no array of width V outlives its chunk. A head in training is left to autograd, and recomputed
in the backward pass where there is more than one chunk.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from ghar.llm.logits import IDENTITY, LogitTransform

CHUNK = 1024  # positions whose logits are in memory at once
FROZEN_CHUNK = 128  # the same of a frozen head: small enough to stay in a CPU's cache
FORBIDDEN = -1e30  # as a logit: a probability of zero, but finite, so that zero times it is no NaN


def token_scores(
    head: nn.Module,
    hidden: Tensor,
    target: Tensor,
    allowed: Tensor | None,
    restricted: Tensor,
    temperature: float,
    entropy_gradient: bool,
    transform: LogitTransform = IDENTITY,
) -> tuple[Tensor, Tensor]:
    """Log-prob of `target` [P] and entropy [P], float32, at states hidden [P, H].

    The softmax of a `restricted` position (bool [P]) runs over its `allowed` ids [P, K] alone. entropy_gradient: let
    gradients pass through the entropy too. transform: from the head's product to the model's logits.
    """
    if _is_frozen(head):
        lines = (target, allowed, restricted)
        return _FrozenHead.apply(hidden, head.weight, *lines, temperature, entropy_gradient, transform)  # type: ignore[return-value]
    done = []
    for start in range(0, len(hidden), CHUNK):
        part = slice(start, start + CHUNK)
        some = None if allowed is None else allowed[part]
        args = (head, hidden[part], target[part], some, restricted[part], temperature, entropy_gradient, transform)
        if torch.is_grad_enabled() and len(hidden) > CHUNK:
            done.append(checkpoint(_scores, *args, use_reentrant=False))
        else:
            done.append(_scores(*args))
    return torch.cat([d[0] for d in done]), torch.cat([d[1] for d in done])


def _is_frozen(head: nn.Module) -> bool:
    """Whether no gradient of the head's weights is wanted and all of them are here (ZeRO-3 keeps shares, `ds_id`)."""
    if type(head) is not nn.Linear or head.bias is not None or hasattr(head.weight, "ds_id"):
        return False
    return not (torch.is_grad_enabled() and head.weight.requires_grad)


class _FrozenHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        target: Tensor,
        allowed: Tensor | None,
        restricted: Tensor,
        temperature: float,
        entropy_gradient: bool,
        transform: LogitTransform,
    ) -> tuple[Tensor, Tensor]:
        wanted = ctx.needs_input_grad[0]
        logp, entropy = (torch.empty(len(hidden), device=hidden.device) for _ in range(2))
        slopes = [torch.empty_like(hidden) for _ in range(wanted * (1 + entropy_gradient))]
        by = temperature / transform.scale
        for start in range(0, len(hidden), FROZEN_CHUNK):
            part = slice(start, start + FROZEN_CHUNK)
            logits = transform.apply((hidden[part] @ weight.T).float())
            rate = transform.rate(logits) if wanted else None
            logits = logits if temperature == 1 else logits.div_(temperature)
            if allowed is not None:
                _forbid(logits, allowed[part], restricted[part])
            p = logits.softmax(-1)
            log_sum = logits.amax(-1) - p.amax(-1).log()
            logp[part] = logits.gather(1, target[part, None]).squeeze(1) - log_sum
            mean = torch.bmm(p[:, None], logits[:, :, None]).flatten()  # Σ_v p_v logit_v
            entropy[part] = log_sum - mean
            if wanted:
                own = weight[target[part]]
                if rate is not None:
                    own, p = own * rate.gather(1, target[part, None]), p * rate
                expected = p.to(weight.dtype) @ weight
                slopes[0][part] = (own - expected) / by
            if wanted and entropy_gradient:  # dH/dlogit_v = -p_v (logit_v - mean)
                spread = logits.mul_(p).to(weight.dtype) @ weight
                slopes[1][part] = (mean[:, None] * expected - spread) / by
        ctx.save_for_backward(*slopes)
        if not entropy_gradient:
            ctx.mark_non_differentiable(entropy)
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, *above: Tensor) -> tuple[Tensor | None, ...]:
        slopes: tuple[Tensor, ...] = ctx.saved_tensors
        gradient = sum(a[:, None].to(slope.dtype) * slope for a, slope in zip(above, slopes, strict=False))
        return (gradient if slopes else None, *(None,) * 7)  # type: ignore[return-value]


def _forbid(logits: Tensor, allowed: Tensor, restricted: Tensor) -> None:
    """Leave the `restricted` lines of `logits` their `allowed` ids only."""
    lines = restricted.nonzero().squeeze(1)
    kept = logits[lines].gather(1, allowed[lines])
    logits[lines] = torch.full((len(lines), logits.shape[1]), FORBIDDEN, device=logits.device).scatter_(
        1, allowed[lines], kept
    )


def _scores(
    head: nn.Module,
    hidden: Tensor,
    target: Tensor,
    allowed: Tensor | None,
    restricted: Tensor,
    temperature: float,
    entropy_gradient: bool,
    transform: LogitTransform,
) -> tuple[Tensor, Tensor]:
    """`token_scores` of one chunk, by autograd."""
    logits = transform.apply(head(hidden).float()) / temperature
    if allowed is not None:
        forbidden = restricted[:, None].expand(logits.shape).clone()
        forbidden.scatter_(1, allowed, False)
        logits = logits.masked_fill(forbidden, FORBIDDEN)
    logp = logits.log_softmax(-1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        entropy = -(logp.exp() * logp).sum(-1)
    return logp.gather(1, target[:, None]).squeeze(1), entropy
