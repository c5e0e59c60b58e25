"""A critic with a trunk of its own, which reads the state of the whole episode (`rl.state`) and takes steps of
its own: learning rate, epochs and minibatches are not the policy's.

Full fine-tuning: its trunk is a copy of the policy's as the warm-up left it. LoRA: a second adapter on the same base.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.last_layer import only_at, trunk_of
from ghar.trainers.rl.rows import micro_batches
from ghar.trainers.rl.state import State
from ghar.trainers.rl.trajectory import Array
from ghar.trainers.runs.distributed import gather, gather_rows, rank, world

WIDTH = 64  # of the layer that joins what the trunk read and what was counted
FORGET = 0.2  # weight of the newest batch in the running mean and spread of returns
LEAST_SPREAD = 1e-2  # returns that are all alike are not blown up


@dataclass(frozen=True)
class CriticConfig:
    """How a critic learns. epochs: passes over a batch's episodes, in `minibatches` steps each; micro_tokens: padded
    tokens a forward pass; lr: learning rate; max_grad_norm: of the global norm."""

    epochs: int
    minibatches: int
    micro_tokens: int
    lr: float
    max_grad_norm: float


class Scaled(nn.Module):
    """The last layer of a value function whose targets are brought to mean 0 and spread 1, agent by agent; values
    stay what they were when mean and spread change (PopArt, van Hasselt et al. 2016, "Learning values across many
    orders of magnitude")."""

    mean: Tensor
    spread: Tensor
    seen: Tensor

    def __init__(self, width: int, agents: int) -> None:
        super().__init__()
        self.last = cast(nn.Linear, nn.utils.skip_init(nn.Linear, width, agents))
        nn.init.zeros_(self.last.weight)
        nn.init.zeros_(self.last.bias)
        self.register_buffer("mean", torch.zeros(agents))
        self.register_buffer("spread", torch.ones(agents))
        self.register_buffer("seen", torch.zeros(agents, dtype=torch.bool))

    def forward(self, hidden: Tensor, agent: Tensor) -> Tensor:
        """[n], in units of the spread."""
        return self.last(hidden).gather(1, agent[:, None]).squeeze(1)

    def value(self, scaled: Tensor, agent: Tensor) -> Tensor:
        """In units of reward."""
        return scaled * self.spread[agent] + self.mean[agent]

    def target(self, returns: Tensor, agent: Tensor) -> Tensor:
        """What `forward` should say for these returns."""
        return (returns - self.mean[agent]) / self.spread[agent]

    @torch.no_grad()
    def observe(self, returns: Array, agent: Array) -> None:
        """Move mean and spread towards those of a batch's returns; what they have told so far is told in their unit."""
        for a in np.unique(agent):
            own = returns[agent == a]
            mean, square = float(own.mean()), float((own**2).mean())
            if self.seen[a]:
                before = float(self.spread[a]) ** 2 + float(self.mean[a]) ** 2
                mean = (1 - FORGET) * float(self.mean[a]) + FORGET * mean
                square = (1 - FORGET) * before + FORGET * square
                spread = max(LEAST_SPREAD, max(0.0, square - mean**2) ** 0.5)
                self.last.weight[a] *= self.spread[a] / spread
                self.last.bias[a] = (self.spread[a] * self.last.bias[a] + self.mean[a] - mean) / spread
            else:  # a new head says the mean
                spread = max(LEAST_SPREAD, max(0.0, square - mean**2) ** 0.5)
            self.mean[a], self.spread[a], self.seen[a] = mean, spread, True


class Critic(nn.Module):
    """V of an episode's states: a trunk, the counted numbers beside what it read, and a layer of each agent."""

    def __init__(self, actor: ActorCritic, numbers: int, cfg: CriticConfig, seed: int) -> None:
        super().__init__()
        self.cfg, self._actor = cfg, [actor]  # in a list: no part of this module
        if actor.cfg.finetune == "full":
            self.trunk = copy.deepcopy(trunk_of(actor.model)).requires_grad_(True)
            read = list(self.trunk.parameters())
        else:
            self.trunk = None
            read = actor.critic_adapter
        hidden = actor.model.get_input_embeddings().weight.shape[1]
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.join = nn.Linear(hidden + numbers, WIDTH)
        self.head = Scaled(WIDTH, len(actor.cfg.agents))
        self.join, self.head = self.join.to(actor.device), self.head.to(actor.device)
        self.learned = [*read, *self.join.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.AdamW(self.learned, lr=cfg.lr, weight_decay=0.0)
        self.eval()

    # ---------------------------------------------------------------- values

    @torch.no_grad()
    def values(self, states: Sequence[State]) -> list[Array]:
        """V of each episode's states, float32 [n], in units of reward."""
        found: list[Array] = [np.zeros(0, np.float32)] * len(states)
        for index in self._micro(states):
            part = [states[i] for i in index]
            scaled, agent = self(part)
            told = self.head.value(scaled, agent).cpu().numpy()
            for i, own in zip(index, np.split(told, np.cumsum([len(s.position) for s in part])[:-1]), strict=True):
                found[i] = own
        return found

    def forward(self, states: Sequence[State]) -> tuple[Tensor, Tensor]:
        """Scaled values of all states of a few episodes, one after the other, and who acts in them; both [n]."""
        device = self.head.mean.device
        tokens = np.zeros((len(states), max(len(s.tokens) for s in states)), np.int64)
        for i, state in enumerate(states):
            tokens[i, : len(state.tokens)] = state.tokens
        row = np.repeat(np.arange(len(states)), [len(s.position) for s in states])
        columns = row, np.concatenate([s.position for s in states]), np.concatenate([s.agent for s in states])
        at, position, agent = (torch.as_tensor(c, device=device) for c in columns)
        hidden = self._read(torch.as_tensor(tokens, device=device), at, position).to(self.join.weight.dtype)
        numbers = torch.as_tensor(np.concatenate([s.numbers for s in states]), device=device)
        joined = nn.functional.silu(self.join(torch.cat([hidden, numbers], dim=1)))
        return self.head(joined, agent), agent

    def _read(self, tokens: Tensor, row: Tensor, position: Tensor) -> Tensor:
        actor = self._actor[0]
        if self.trunk is not None:
            return _states(self.trunk, tokens, row, position)
        with actor.reading_as_critic():
            return _states(actor.policy, tokens, row, position)

    def _micro(self, states: Sequence[State]) -> list[list[int]]:
        return micro_batches([len(s.tokens) for s in states], self.cfg.micro_tokens)

    # -------------------------------------------------------------- learning

    def observe(self, states: Sequence[State], returns: Sequence[Array]) -> None:
        """Let mean and spread of all processes' returns follow this batch. Call it before `values` of the batch."""
        rows = gather_rows([np.stack([r, s.agent]) for s, r in zip(states, returns, strict=True)])
        told, agent = np.concatenate(rows, axis=1)
        self.head.observe(told, agent.astype(np.int64))

    def fit(self, states: Sequence[State], returns: Sequence[Array], rng: np.random.Generator) -> dict[str, float]:
        """Regress on `returns`, [n] for each episode: squared error in units of their spread, all states alike.

        Every process calls it with its own episodes and an `rng` in the same state.
        """
        counts = gather(len(states))
        first, total = sum(counts[: rank()]), sum(counts)
        told: list[float] = []
        for _ in range(self.cfg.epochs):
            for everyone in np.array_split(rng.permutation(total), min(self.cfg.minibatches, total)):
                own = everyone[(everyone >= first) & (everyone < first + len(states))] - first
                told.append(self._step([states[i] for i in own], [returns[i] for i in own]))
        return {"critic/loss": told[-1], "critic/loss_first": told[0]}

    def _step(self, states: Sequence[State], returns: Sequence[Array]) -> float:
        count = sum(gather(sum(len(r) for r in returns)))
        loss = 0.0
        for index in self._micro(states):
            scaled, agent = self([states[i] for i in index])
            told = torch.as_tensor(np.concatenate([returns[i] for i in index]), device=scaled.device)
            error = (scaled - self.head.target(told.float(), agent)).square().sum() / count
            error.backward()
            loss += float(error.detach())
        if world() > 1:
            for p in self.learned:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(p.grad)
        norm = float(torch.nn.utils.clip_grad_norm_(self.learned, self.cfg.max_grad_norm))
        if not np.isfinite(norm):
            raise FloatingPointError(f"the critic's gradient norm is {norm}: lower trainer.rl.value_lr")
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return sum(gather(loss))

    # ------------------------------------------------------------- checkpoint

    def state(self) -> dict[str, Any]:
        """Weights, scale and optimiser, in CPU memory."""
        weights = [p.detach().cpu().clone() for p in self.learned]
        scale = {name: value.cpu().clone() for name, value in self.head.named_buffers()}
        return {"weights": weights, "scale": scale, "optimizer": copy.deepcopy(self.optimizer.state_dict())}

    @torch.no_grad()
    def load_state(self, state: dict[str, Any]) -> None:
        """Undo `state` in place."""
        for parameter, saved in zip(self.learned, state["weights"], strict=True):
            parameter.copy_(saved)
        for name, value in self.head.named_buffers():
            value.copy_(state["scale"][name])
        self.optimizer.load_state_dict(state["optimizer"])


def _states(model: Any, tokens: Tensor, row: Tensor, position: Tensor) -> Tensor:
    """Trunk states [n, H] at position [n] of row [n]."""
    with only_at(model, row, position):
        return trunk_of(model)(input_ids=tokens, use_cache=False).last_hidden_state[0]
