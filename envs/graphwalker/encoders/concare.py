"""ConCare: a GRU of its own for every variable, time-aware attention, attention across variables (Ma et al., AAAI
2020b).

Within a variable, the last state asks all states; a score fades with the hours that have passed, the more the less
the state has in common with the question: tanh(q.k / (beta * log(e + (1 - sigmoid(q.k)) * hours))), beta > 0 learned
for each variable. Across variables: multi-head self-attention, then a weighted mean. A penalty on correlations between
the dimensions of the context vectors (DeCov, Cogswell et al. 2016) goes into the training loss.

From the authors' defaults: width 64, 4 heads, dropout 0.5. Here every variable's GRU reads the value and whether it
was measured, as the benchmark's tables give both. Static numbers (age and sex, system.demographics) are one more
variable, a tanh of a linear map, as in the authors' code.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ghar.envs.graphwalker.encoders.batches import Output, SeriesBatch

DECOV = 1e-3  # weight of the penalty; ours
HEADS = 4


class ConCare(nn.Module):
    """Predictor with embeddings [b, hidden]."""

    def __init__(self, features: int, classes: int, hidden: int, static: int = 0) -> None:
        super().__init__()
        self.channels = _Channels(features, hidden)
        self.query, self.key = _each(features, hidden, hidden), _each(features, hidden, hidden)
        self.fading = nn.Parameter(torch.zeros(features))
        self.across = nn.MultiheadAttention(hidden, HEADS, dropout=0.1, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(hidden, 4 * hidden), nn.ReLU(), nn.Linear(4 * hidden, hidden))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
        self.weigh = nn.Sequential(nn.Linear(hidden, hidden), nn.Tanh(), nn.Linear(hidden, 1, bias=False))
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(hidden, classes))
        self.static = nn.Linear(static, hidden) if static else None

    def forward(self, batch: SeriesBatch) -> Output:
        context = self.contexts(batch)
        if self.static is not None:
            context = torch.cat([context, self.static(batch.static).tanh()[:, None]], dim=1)
        x = self.norms[0](context + self.across(context, context, context, need_weights=False)[0])
        x = self.norms[1](x + self.feed(x))
        embedding = (torch.softmax(self.weigh(x), dim=1) * x).sum(1)
        return Output(embedding, self.classifier(embedding), DECOV * decorrelation(context))

    def contexts(self, batch: SeriesBatch) -> Tensor:
        """[b, F, hidden]: what each variable's own history says."""
        states = self.channels(batch)  # [b, T, F, hidden]
        at_end = states[torch.arange(len(states), device=states.device), batch.last]
        query = torch.einsum("bfh,fhk->bfk", at_end, self.query)
        likeness = torch.einsum("bfk,btfh,fhk->btf", query, states, self.key) / math.sqrt(states.shape[-1])
        passed = (batch.hours.gather(1, batch.last[:, None]) - batch.hours).clamp(min=0)[..., None]
        fading = F.softplus(self.fading) * torch.log(math.e + (1 - likeness.sigmoid()) * passed)
        score = torch.tanh(likeness / (fading + 1e-6)).masked_fill(~batch.real[..., None], -torch.inf)
        return torch.einsum("btf,btfh->bfh", score.softmax(dim=1), states)


class _Channels(nn.Module):
    """A GRU for each variable, all of them in one product a step: Batch -> states [b, T, F, hidden]."""

    def __init__(self, features: int, hidden: int) -> None:
        super().__init__()
        self.from_input, self.from_state = _each(features, 2, 3 * hidden), _each(features, hidden, 3 * hidden)
        self.bias_input = nn.Parameter(torch.zeros(features, 3 * hidden))
        self.bias_state = nn.Parameter(torch.zeros(features, 3 * hidden))

    def forward(self, batch: SeriesBatch) -> Tensor:
        cells = torch.stack([batch.filled, batch.observed.to(batch.filled.dtype)], dim=-1)
        given = torch.einsum("btfi,fih->btfh", cells, self.from_input) + self.bias_input
        state = given.new_zeros(len(given), given.shape[2], self.from_state.shape[1])
        states = []
        for step in given.unbind(1):
            reset, update, new = step.chunk(3, -1)
            own_reset, own_update, own_new = (
                torch.einsum("bfh,fhk->bfk", state, self.from_state) + self.bias_state
            ).chunk(3, -1)
            update = (update + own_update).sigmoid()
            state = (1 - update) * (new + (reset + own_reset).sigmoid() * own_new).tanh() + update * state
            states.append(state)
        return torch.stack(states, 1)


def decorrelation(context: Tensor) -> Tensor:
    """Half the sum of squared covariances between different dimensions over the batch, mean over the variables."""
    centred = context - context.mean(0)
    covariance = torch.einsum("bfh,bfk->fhk", centred, centred) / len(context)
    off = covariance - torch.diag_embed(covariance.diagonal(dim1=1, dim2=2))
    return off.square().sum((1, 2)).mean() / 2


def _each(features: int, rows: int, columns: int) -> nn.Parameter:
    """A matrix for each variable, drawn as torch's GRU draws its own."""
    bound = 1 / math.sqrt(max(rows, columns // 3))
    return nn.Parameter(torch.empty(features, rows, columns).uniform_(-bound, bound))
