"""RETAIN (Choi et al. 2016) and a Transformer (Vaswani et al. 2017) over visits, small ones, fitted as the GRU is.

Loads torch, so import it only where one of them is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from ghar.envs.baselines.features import TrainingData
from ghar.envs.baselines.gru import DROPOUT, VisitModel, Visits, VisitVectors, fit_network

HEADS, LAYERS, PLACES = 4, 1, 64  # of the Transformer; places: visits told apart by how many follow them


class Retain(nn.Module):
    """Two GRUs read the visits from the newest to the oldest: one says how much each visit counts, the other how much
    each part of its vector does. Their weighted sum gives the label."""

    def __init__(self, codes: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.vectors = VisitVectors(codes, hidden)
        self.over_visits = nn.GRU(hidden, hidden, batch_first=True)
        self.over_parts = nn.GRU(hidden, hidden, batch_first=True)
        self.visit = nn.Linear(hidden, 1)
        self.part = nn.Linear(hidden, hidden)
        self.label = nn.Linear(hidden, classes)

    def forward(self, samples: Sequence[Visits]) -> torch.Tensor:
        """f32[samples, classes]."""
        padded, lengths = self.vectors([sample[::-1] for sample in samples])
        beyond = torch.arange(padded.shape[1]) >= lengths[:, None]
        scores = self.visit(self.over_visits(padded)[0]).squeeze(2).masked_fill(beyond, -torch.inf)
        parts = torch.tanh(self.part(self.over_parts(padded)[0]))
        return self.label((torch.softmax(scores, dim=1)[:, :, None] * parts * padded).sum(dim=1))


class Transformer(nn.Module):
    """Self-attention over visits, each told how many follow it; the newest one's state gives the label."""

    def __init__(self, codes: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.vectors = VisitVectors(codes, hidden)
        self.places = nn.Embedding(PLACES, hidden)
        layer = nn.TransformerEncoderLayer(hidden, HEADS, 2 * hidden, DROPOUT, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.label = nn.Linear(hidden, classes)

    def forward(self, samples: Sequence[Visits]) -> torch.Tensor:
        """f32[samples, classes]. The newest visit comes first."""
        padded, lengths = self.vectors([sample[::-1] for sample in samples])
        places = torch.arange(padded.shape[1])
        states = self.layers(
            padded + self.places(places.clamp(max=PLACES - 1)), src_key_padding_mask=places >= lengths[:, None]
        )
        return self.label(states[:, 0])


def fit_retain(data: TrainingData) -> VisitModel:
    """RETAIN."""
    return fit_network(data, Retain)


def fit_transformer(data: TrainingData) -> VisitModel:
    """The Transformer, of the next width that its heads divide."""
    return fit_network(data, lambda codes, hidden, classes: Transformer(codes, -(-hidden // HEADS) * HEADS, classes))
