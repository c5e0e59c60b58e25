"""Drawing tokens from logits where they are, a whole batch at once.

A vocabulary of 152,000 is passed over twice in float32 (softmax, sums over blocks of ids); what needs float64 needs it
for the sums of blocks and for one block a row, which are small.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ghar.errors import BadInput

BLOCK = 512  # ids summed up together
TOGETHER = 600_000  # logits drawn from together on a processor, whose caches hold so many: 4 rows of 150,000


def draw(logits: Tensor, temperatures: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    """One token for each row of logits [R, V]: ids int64 [R] and log-probabilities float64 [R], on the CPU.

    temperatures, draws: float64 [R] on the CPU; the draw inverts the cumulative distribution in the order of ids. A
    temperature of 0 takes the most probable token, whose log-probability is then that at temperature 1.
    """
    together = len(logits) if logits.is_cuda else max(1, TOGETHER // logits.shape[1])
    parts = [_draw(*p) for p in zip(*(x.split(together) for x in (logits, temperatures, draws)), strict=True)]
    return _sound(torch.cat([token for token, _ in parts]), torch.cat([logp for _, logp in parts]))


def _sound(token: Tensor, logp: Tensor) -> tuple[Tensor, Tensor]:
    """What was drawn. BadInput where a row's logits were no distribution: NaN or infinite ones, or none above -inf."""
    if not bool(torch.isfinite(logp).all()):
        raise BadInput(
            "The model's logits are not numbers, so no token can be drawn: its weights are damaged or its training has "
            "diverged. Take an earlier checkpoint, or train again with a lower trainer.rl.lr or another model.dtype."
        )
    return token, logp


def _draw(logits: Tensor, temperatures: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
    greedy = temperatures == 0
    if not bool(((temperatures == 1) | greedy).all()):
        logits = logits.float() / torch.where(greedy, 1.0, temperatures).to(logits.device, torch.float32)[:, None]
    p = logits.float().softmax(-1)  # quicker than with dtype= where logits are bfloat16
    ids = p.shape[1]
    even = ids - ids % BLOCK  # the rest is a block of its own
    parts = [p[:, :even].view(len(p), -1, BLOCK).sum(-1), p[:, even:].sum(-1, keepdim=True)]
    sums = torch.cat(parts, 1).double().cumsum(-1)
    wanted = draws.to(p.device)[:, None] * sums[:, -1:]
    block = torch.searchsorted(sums, wanted, right=True).clamp_(max=sums.shape[1] - 1)
    before = torch.where(block > 0, sums.gather(1, (block - 1).clamp(min=0)), 0.0)
    places = block * BLOCK + torch.arange(BLOCK, device=p.device)
    inside = p.gather(1, places.clamp(max=ids - 1)).masked_fill_(places >= ids, 0.0)
    place = torch.searchsorted(inside.double().cumsum(-1), wanted - before, right=True).clamp_(max=BLOCK - 1)
    # rounding may lead past the last id of a block that can be drawn, or into a block where there is none
    place = torch.where(inside.gather(1, place) > 0, place, inside.argmax(-1, keepdim=True))
    token = places.gather(1, place)
    for row in ((p.gather(1, token.clamp(max=ids - 1)) == 0).squeeze(1) | greedy.to(p.device)).nonzero().flatten():
        token[row] = p[row].argmax()
    logp = p.gather(1, token).double().log()
    return token.squeeze(1).cpu(), logp.squeeze(1).cpu()


def draw_among(
    logits: Tensor, allowed: Sequence[Sequence[int]], temperatures: Tensor, draws: Tensor
) -> tuple[Tensor, Tensor]:
    """`draw` where row r may take only the ids allowed[r], ascending: of the vocabulary nothing else is read."""
    width = max(map(len, allowed))
    ids = torch.tensor([[*some, *[some[0]] * (width - len(some))] for some in allowed])
    lengths = torch.tensor([len(some) for some in allowed])
    kept = logits.gather(1, ids.to(logits.device)).cpu().double()
    kept.masked_fill_(torch.arange(width) >= lengths[:, None], -torch.inf)
    greedy = temperatures == 0
    logp = (kept / torch.where(greedy, 1.0, temperatures)[:, None]).log_softmax(-1)
    sums = logp.exp().cumsum(-1)
    place = torch.searchsorted(sums, draws[:, None] * sums[:, -1:], right=True).clamp_(max=(lengths - 1)[:, None])
    place = torch.where(greedy[:, None], logp.argmax(-1, keepdim=True), place)
    return _sound(ids.gather(1, place).squeeze(1), logp.gather(1, place).squeeze(1))
