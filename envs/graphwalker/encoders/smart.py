"""SMART: a missing-aware transformer over variables and time, pre-trained on hidden values (Yu et al., NeurIPS 2024).

Every variable is a sequence of its own with a [CLS] step before it. A block attends over time within each variable,
then over variables within each step; attention scores get a learned bias that depends on whether the query and the key
were measured. Pre-training hides measured values and predicts, in the space of latents, what a slowly following copy
of the encoder (EMA) makes of the whole series. The embedding is the [CLS] latent of every variable, side by side.

From the authors' defaults: width 32, 2 blocks, 4 heads, dropout 0.1, share hidden uniform in 0..0.75 a sample, smooth
L1, EMA rate from 0.996 to 1. Ours: the form of the bias; sinusoids of hours where they number the steps, because
steps here may start anywhere in a stay; and static numbers (age and sex, system.demographics) beside the latents.
"""

from __future__ import annotations

import copy
import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ghar.envs.graphwalker.encoders.batches import Output, SeriesBatch

HIDE_AT_MOST, EMA_START = 0.75, 0.996
LAYERS, HEADS = 2, 4


class Smart(nn.Module):
    """Predictor with embeddings [b, F * hidden], behind them [b, hidden] of static numbers where there are some."""

    def __init__(self, features: int, classes: int, hidden: int, static: int = 0) -> None:
        super().__init__()
        self.encoder = SmartEncoder(features, hidden, LAYERS, HEADS)
        width = (features + (static > 0)) * hidden
        self.classifier = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(hidden, classes)
        )
        self.static = nn.Linear(static, hidden) if static else None

    def forward(self, batch: SeriesBatch) -> Output:
        embedding = self.encoder(batch)[:, :, 0].flatten(1)
        if self.static is not None:
            embedding = torch.cat([embedding, self.static(batch.static).tanh()], dim=1)
        return Output(embedding, self.classifier(embedding))


class SmartEncoder(nn.Module):
    """Batch -> latents [b, F, 1 + T, hidden], the [CLS] step first."""

    def __init__(self, features: int, hidden: int, layers: int, heads: int) -> None:
        super().__init__()
        self.of_cell = nn.Linear(2, hidden)  # value and whether it was measured
        self.of_variable = nn.Parameter(0.02 * torch.randn(features, 1, hidden))
        self.cls = nn.Parameter(0.02 * torch.randn(features, 1, hidden))
        self.blocks = nn.ModuleList(_Block(hidden, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(hidden)

    def forward(self, batch: SeriesBatch) -> Tensor:
        cells = torch.stack([batch.values, batch.observed.to(batch.values.dtype)], dim=-1).transpose(1, 2)
        x = self.of_cell(cells) + self.of_variable + sinusoids(batch.hours, self.cls.shape[-1])[:, None]
        x = torch.cat([self.cls.expand(len(x), -1, -1, -1), x], dim=2)
        observed = F.pad(batch.observed.transpose(1, 2), (1, 0), value=True)  # [b, F, 1 + T]
        real = F.pad(batch.real, (1, 0), value=True)
        for block in self.blocks:
            x = block(x, observed, real)
        return self.norm(x)


class _Block(nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.over_time, self.over_variables = _Attention(hidden, heads), _Attention(hidden, heads)
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(3))
        self.feed = nn.Sequential(
            nn.Linear(hidden, 4 * hidden), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * hidden, hidden), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor, observed: Tensor, real: Tensor) -> Tensor:
        """x: [b, F, T, hidden], observed: [b, F, T], real: [b, T]."""
        x = x + self.over_time(self.norms[0](x), observed, real[:, None, None, None, :])
        across = self.over_variables(self.norms[1](x).transpose(1, 2), observed.transpose(1, 2), None)
        x = x + across.transpose(1, 2)
        return x + self.feed(self.norms[2](x))


class _Attention(nn.Module):
    """Self-attention over the third axis of [b, g, n, hidden], with a bias by (query measured, key measured)."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.project, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.bias = nn.Parameter(torch.zeros(heads, 2, 2))

    def forward(self, x: Tensor, observed: Tensor, allowed: Tensor | None) -> Tensor:
        b, g, n, hidden = x.shape
        parts = self.project(x).view(b, g, n, 3, self.heads, -1).permute(3, 0, 1, 4, 2, 5)
        pair = F.one_hot(observed.long(), 2).to(x.dtype)
        bias = torch.einsum("bgqi,hij,bgkj->bghqk", pair, self.bias, pair)
        if allowed is not None:
            bias = bias.masked_fill(~allowed, -torch.inf)
        dropout = 0.1 if self.training else 0.0
        y = F.scaled_dot_product_attention(parts[0], parts[1], parts[2], attn_mask=bias, dropout_p=dropout)
        return self.out(y.transpose(2, 3).reshape(b, g, n, hidden))


class Pretraining(nn.Module):
    """The loss of pre-training, and the copy of the encoder that makes its targets."""

    def __init__(self, encoder: SmartEncoder, hidden: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.target = copy.deepcopy(encoder).eval().requires_grad_(False)
        self.predictor = nn.Sequential(nn.Linear(hidden, hidden), nn.GELU(), nn.Linear(hidden, hidden))

    def loss(self, batch: SeriesBatch, hidden: Tensor) -> Tensor:
        """Smooth L1 over the cells that were measured and are hidden (bool [b, T, F])."""
        with torch.no_grad():
            target = self.target.eval()(batch)[:, :, 1:]
        guess = self.predictor(self.encoder(hide(batch, hidden))[:, :, 1:])
        error = F.smooth_l1_loss(guess, target, reduction="none").mean(-1)
        cells = (hidden & batch.observed).transpose(1, 2)
        return (error * cells).sum() / cells.sum().clamp(min=1)

    @torch.no_grad()
    def follow(self, progress: float) -> None:
        """Move the copy towards the encoder; `progress` is the share of the pre-training that is done, 0..1."""
        rate = EMA_START + progress * (1 - EMA_START)
        for own, other in zip(self.target.parameters(), self.encoder.parameters(), strict=True):
            own.mul_(rate).add_(other, alpha=1 - rate)


def hide(batch: SeriesBatch, hidden: Tensor) -> SeriesBatch:
    """The batch as if the cells `hidden` (bool [b, T, F]) had not been measured; copies of them (`filled`) go too."""
    observed = batch.observed & ~hidden
    return replace(batch, values=batch.values * observed, observed=observed, filled=torch.zeros_like(batch.filled))


def draw_hidden(batch: SeriesBatch) -> Tensor:
    """Cells to hide, bool [b, T, F]: a share drawn for each sample, from torch's generator."""
    share = HIDE_AT_MOST * torch.rand(len(batch.values), 1, 1)
    return (torch.rand(batch.values.shape) < share).to(batch.values.device)  # drawn alike for every device


def sinusoids(hours: Tensor, width: int) -> Tensor:
    """[..., width] sines and cosines of hours, of periods from about 6 hours to a year."""
    rates = torch.exp(torch.linspace(0.0, -math.log(1500.0), width // 2, device=hours.device))
    angles = hours[..., None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=-1)
