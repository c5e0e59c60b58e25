"""A small GRU over visits: each visit is the sum of its codes' vectors, and the last state gives the label. The fit
serves other networks over visits too (attention.py).

Loads torch, so import it only where a network is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence

from ghar.data.cohort import Sample
from ghar.envs.baselines.features import TrainingData, codes_of, labels_of, vocabulary

BATCH, RATE, DECAY, DROPOUT = 64, 3e-3, 1e-2, 0.3
TOGETHER = 512  # samples that are asked about at once

Visits = list[list[int]]  # of one sample: the code numbers of each visit, oldest first


class VisitVectors(nn.Module):
    """Each visit as the sum of its codes' vectors."""

    def __init__(self, codes: int, hidden: int) -> None:
        super().__init__()
        self.codes = nn.EmbeddingBag(codes, hidden, mode="sum")
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, samples: Sequence[Visits]) -> tuple[torch.Tensor, torch.Tensor]:
        """f32[samples, visits, hidden], padded at the end, and i64[samples], how many visits each has: at least one,
        which may show no codes."""
        bags = [visit for sample in samples for visit in sample]
        flat = torch.tensor([code for bag in bags for code in bag], dtype=torch.long)
        starts = torch.tensor(np.cumsum([0, *(len(bag) for bag in bags)])[:-1], dtype=torch.long)
        vectors = self.dropout(torch.relu(self.codes(flat, starts)))
        lengths = torch.tensor([len(sample) for sample in samples])
        return nn.utils.rnn.pad_sequence(list(vectors.split(lengths.tolist())), batch_first=True), lengths


class Network(nn.Module):
    """Label scores of samples."""

    def __init__(self, codes: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.vectors = VisitVectors(codes, hidden)
        self.dropout = nn.Dropout(DROPOUT)
        self.over_visits = nn.GRU(hidden, hidden, batch_first=True)
        self.label = nn.Linear(2 * hidden, classes)

    def forward(self, samples: Sequence[Visits]) -> torch.Tensor:
        """f32[samples, classes]."""
        padded, lengths = self.vectors(samples)
        packed = pack_padded_sequence(padded, lengths, batch_first=True, enforce_sorted=False)
        state = self.over_visits(packed)[1][-1]
        newest = padded[torch.arange(len(samples)), lengths - 1]
        return self.label(self.dropout(torch.cat([state, newest], dim=1)))


@dataclass(frozen=True, eq=False)
class VisitModel:
    """A fitted network. visits: so many of the newest ones are read."""

    network: nn.Module
    place: Mapping[str, int]
    visits: int
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        read = numbered(samples, self.place, self.visits)
        return torch.softmax(_scores(self.network, read), dim=1).double().numpy()


def numbered(samples: Sequence[Sample], place: Mapping[str, int], visits: int) -> list[Visits]:
    """The code numbers of the newest visits; codes without one are left out."""
    return [
        [[place[code] for code in codes_of(visit) if code in place] for visit in sample.history[-visits:]] or [[]]
        for sample in samples
    ]


def fit_gru(data: TrainingData) -> VisitModel:
    """The GRU."""
    return fit_network(data, Network)


def fit_network(data: TrainingData, make: Callable[[int, int, int], nn.Module]) -> VisitModel:
    """The epoch with the lowest validation loss. The same bits for the same seed on the same machine.

    make: an untrained network, given how many codes, the width, and how many classes.
    """
    own, place = data.settings, vocabulary(data.train)
    train, valid = (numbered(samples, place, own.visits) for samples in (data.train, data.valid))
    truth, judged = torch.from_numpy(data.labels), torch.from_numpy(labels_of(data.valid))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(data.seed)
        network = make(max(len(place), 1), own.hidden, data.classes)
        best, lowest, at = copy.deepcopy(network.state_dict()), np.inf, 0
        for epoch, _ in enumerate(_epochs(network, train, truth, own.epochs), 1):
            loss = float(nn.functional.cross_entropy(_scores(network, valid), judged))
            if loss < lowest:
                best, lowest, at = copy.deepcopy(network.state_dict()), loss, epoch
            elif epoch - at >= own.patience:
                break
    network.load_state_dict(best)
    return VisitModel(network, place, own.visits, {"epochs": at})


def _epochs(network: nn.Module, inputs: Sequence[Visits], labels: torch.Tensor, epochs: int) -> Iterator[None]:
    """Train, and stop at the end of each epoch for whoever looks on."""
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=DECAY)
    for _ in range(epochs):
        network.train()
        for rows in torch.randperm(len(inputs)).split(BATCH):
            loss = nn.functional.cross_entropy(network([inputs[i] for i in rows.tolist()]), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        yield


@torch.no_grad()
def _scores(network: nn.Module, inputs: Sequence[Visits]) -> torch.Tensor:
    network.eval()
    return torch.cat([network(inputs[i : i + TOGETHER]) for i in range(0, len(inputs), TOGETHER)])
