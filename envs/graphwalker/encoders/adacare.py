"""AdaCare: dilated convolutions over several time scales, recalibrated features, a GRU (Ma et al., AAAI 2020a).

Causal convolutions of width 2 with dilations 1, 3 and 5 see how features change over short and long times. Their
outputs, and the input itself, are each scaled by a gate between 0 and 1 that looks at their mean over the time so far
(squeeze and excitation). A GRU reads both; the embedding is its state at the last step.

From the authors' defaults: 64 kernels a dilation, reduction 4, GRU of width 384, dropout 0.5. Inputs are the value and
whether it was measured, as the benchmark's tables give both. Static numbers (age and sex, system.demographics), which
the authors have not, stand in every step.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ghar.envs.graphwalker.encoders.batches import Output, SeriesBatch

DILATIONS, KERNELS, REDUCTION = (1, 3, 5), 64, 4


class AdaCare(nn.Module):
    """Predictor with embeddings [b, hidden]."""

    def __init__(self, features: int, classes: int, hidden: int, static: int = 0) -> None:
        super().__init__()
        width, scales = 2 * features + static, KERNELS * len(DILATIONS)
        self.convolutions = nn.ModuleList(nn.Conv1d(width, KERNELS, 2, dilation=gap) for gap in DILATIONS)
        self.gate_scales, self.gate_input = _gate(scales), _gate(width)
        self.gru = nn.GRU(scales + width, hidden, batch_first=True)
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(hidden, classes))

    def forward(self, batch: SeriesBatch) -> Output:
        static = batch.static[:, None].expand(-1, batch.filled.shape[1], -1)
        x = torch.cat([batch.filled, batch.observed.to(batch.filled.dtype), static], dim=-1)
        by_channel = x.transpose(1, 2)
        scales = [conv(F.pad(by_channel, (gap, 0))) for conv, gap in zip(self.convolutions, DILATIONS, strict=True)]
        changes = torch.cat(scales, 1).transpose(1, 2).relu()
        changes, x = changes * self.gate_scales(mean_so_far(changes)), x * self.gate_input(mean_so_far(x))
        states, _ = self.gru(torch.cat([changes, x], dim=-1))
        rows = torch.arange(len(states), device=states.device)
        embedding = states[rows, batch.last]  # steps of the padding come after it
        return Output(embedding, self.classifier(embedding))


def mean_so_far(x: Tensor) -> Tensor:
    """[b, T, c] -> mean over steps 0..t at each step t."""
    return x.cumsum(1) / torch.arange(1, x.shape[1] + 1, device=x.device)[None, :, None]


def _gate(width: int) -> nn.Sequential:
    small = max(width // REDUCTION, 1)
    return nn.Sequential(nn.Linear(width, small), nn.ReLU(), nn.Linear(small, width), nn.Sigmoid())
