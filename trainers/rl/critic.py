"""A critic with a trunk of its own, which reads the state of the whole episode (`rl.state`) and takes steps of
its own: learning rate, epochs and minibatches are not the policy's.

Full fine-tuning: its trunk is a copy of the policy's as the warm-up left it. LoRA: a second adapter on the same base.

It learns as the policy does: under DeepSpeed what it reads with is sharded, and steps are taken on float32 masters. The
small layers on top stay whole and in float32 in every process, since their scale is moved between steps.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ghar.config import DeepspeedConfig
from ghar.errors import BadInput
from ghar.trainers.rl.actor_critic import ActorCritic, recomputing
from ghar.trainers.rl.fast.last_layer import only_at, trunk_of
from ghar.trainers.rl.fast.rows import micro_batches
from ghar.trainers.rl.learner import DeepSpeedLearner, PlainLearner
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


class CriticReader(nn.Module):
    """What a critic reads an episode with: a copy of the policy's trunk, or an adapter of its own on that."""

    def __init__(self, actor: ActorCritic) -> None:
        super().__init__()
        self._actor = [actor]  # in a list: no part of this module
        self.trunk, self.adapter = None, nn.ParameterList(actor.critic_adapter)
        if actor.cfg.finetune == "full":
            self.trunk = copy.deepcopy(trunk_of(actor.model)).requires_grad_(True)

    def trainable_parameters(self) -> list[nn.Parameter]:
        """The trunk's or the adapter's."""
        return list(self.adapter if self.trunk is None else self.trunk.parameters())

    def reading(self) -> AbstractContextManager[None]:
        """For the duration the adapter is in force; backward passes, too, belong inside, since they may recompute."""
        return self._actor[0].reading_as_critic() if self.trunk is None else nullcontext()

    def forward(self, tokens: Tensor, row: Tensor, position: Tensor) -> Tensor:
        """Trunk states [n, H] at position [n] of row [n]; called within `reading`."""
        actor = self._actor[0]
        model = actor.policy if self.trunk is None else self.trunk
        if actor.cfg.checkpointing:
            recomputing(trunk_of(model))
        with only_at(model, row, position):
            return trunk_of(model)(input_ids=tokens, use_cache=False).last_hidden_state[0]


class CriticTop(nn.Module):
    """What turns states and counted numbers into scaled values."""

    def __init__(self, hidden: int, numbers: int, agents: int, seed: int) -> None:
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.join = nn.Linear(hidden + numbers, WIDTH)
        self.head = Scaled(WIDTH, agents)

    def trainable_parameters(self) -> list[nn.Parameter]:
        """All of them."""
        return list(self.parameters())

    def forward(self, hidden: Tensor, numbers: Tensor, agent: Tensor) -> Tensor:
        """[n], in units of the spread."""
        joined = torch.cat([hidden.to(self.join.weight.dtype), numbers], dim=1)
        return self.head(nn.functional.silu(self.join(joined)), agent)


class CriticParts(nn.Module):
    """Reader and top as one module, for the learner that trains both."""

    def __init__(self, reader: CriticReader, top: CriticTop) -> None:
        super().__init__()
        self.reader, self.top = reader, top

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Of both."""
        return [*self.reader.trainable_parameters(), *self.top.trainable_parameters()]


class Critic:
    """V of an episode's states: a trunk, the counted numbers beside what it read, and a layer of each agent."""

    def __init__(self, actor: ActorCritic, numbers: int, cfg: CriticConfig, seed: int) -> None:
        self.cfg, self._numbers = cfg, numbers
        hidden = actor.model.get_input_embeddings().weight.shape[1]
        self.reader, self.top = CriticReader(actor), CriticTop(hidden, numbers, len(actor.cfg.agents), seed)
        self.top.to(actor.device)
        self.parts = CriticParts(self.reader, self.top).eval()
        self.learned = self.parts.trainable_parameters()
        self.learner: PlainLearner[Any] = PlainLearner(self.parts, self._adamw(self.learned), cfg.max_grad_norm)
        self.sharded: DeepSpeedLearner[CriticReader] | None = None

    def shard(self, settings: DeepspeedConfig, dtype: str) -> None:
        """Train the reader under DeepSpeed from here on, as the policy is; the policy's own engine must be there.

        The gradients of reader and top are clipped apart then.
        """
        own = self._adamw(self.reader.trainable_parameters())
        self.sharded = DeepSpeedLearner(self.reader, own, settings, dtype, self.cfg.max_grad_norm)
        top = self._adamw(self.top.trainable_parameters())
        self.learner = PlainLearner(self.top, top, self.cfg.max_grad_norm)

    def _adamw(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        return torch.optim.AdamW(parameters, lr=self.cfg.lr, weight_decay=0.0)

    @property
    def head(self) -> Scaled:
        """The last layer, with its scale."""
        return self.top.head

    # ---------------------------------------------------------------- values

    @torch.no_grad()
    def values(self, states: Sequence[State]) -> list[Array]:
        """V of each episode's states, float32 [n], in units of reward. Every process must call it."""
        values: list[Array] = [np.zeros(0, np.float32)] * len(states)
        with self._whole(), self.reader.reading():
            for index in self._micro(states):
                part = [states[i] for i in index]
                scaled, agent = self._scaled(part, self.reader)
                flat = self.head.value(scaled, agent).cpu().numpy()
                for i, own in zip(index, np.split(flat, np.cumsum([len(s.position) for s in part])[:-1]), strict=True):
                    values[i] = own
        return values

    def _scaled(self, states: Sequence[State], read: Callable[..., Tensor]) -> tuple[Tensor, Tensor]:
        """Scaled values of all states of a few episodes, one after the other, and who acts in them; both [n]."""
        device = self.head.mean.device
        tokens = np.zeros((len(states), max(len(s.tokens) for s in states)), np.int64)
        for i, state in enumerate(states):
            tokens[i, : len(state.tokens)] = state.tokens
        row = np.repeat(np.arange(len(states)), [len(s.position) for s in states])
        columns = row, np.concatenate([s.position for s in states]), np.concatenate([s.agent for s in states])
        at, position, agent = (torch.as_tensor(c, device=device) for c in columns)
        hidden = read(torch.as_tensor(tokens, device=device), at, position)
        numbers = torch.as_tensor(np.concatenate([s.numbers for s in states]), device=device)
        return self.top(hidden, numbers, agent), agent

    def _whole(self) -> AbstractContextManager[None]:
        return nullcontext() if self.sharded is None else self.sharded.whole()

    def _micro(self, states: Sequence[State]) -> list[list[int]]:
        return micro_batches([len(s.tokens) for s in states], self.cfg.micro_tokens)

    # -------------------------------------------------------------- learning

    def observe(self, states: Sequence[State], returns: Sequence[Array]) -> None:
        """Let mean and spread of all processes' returns follow this batch. Call it before `values` of the batch."""
        rows = gather_rows([np.stack([r, s.agent]) for s, r in zip(states, returns, strict=True)])
        all_returns, agent = np.concatenate(rows, axis=1)
        self.head.observe(all_returns, agent.astype(np.int64))

    def fit(self, states: Sequence[State], returns: Sequence[Array], rng: np.random.Generator) -> dict[str, float]:
        """Regress on `returns`, [n] for each episode: squared error in units of their spread, all states alike.

        Every process calls it with its own episodes and an `rng` in the same state.
        """
        counts = gather(len(states))
        first, total = sum(counts[: rank()]), sum(counts)
        losses: list[float] = []
        for _ in range(self.cfg.epochs):
            for everyone in np.array_split(rng.permutation(total), min(self.cfg.minibatches, total)):
                own = everyone[(everyone >= first) & (everyone < first + len(states))] - first
                losses.append(self._step([states[i] for i in own], [returns[i] for i in own]))
        return {"critic/loss": losses[-1], "critic/loss_first": losses[0]}

    def _step(self, states: Sequence[State], returns: Sequence[Array]) -> float:
        count = sum(gather(sum(len(r) for r in returns)))
        with self.reader.reading():
            loss = self._passes(states, returns, count)
        norm = self._take_step()
        if not np.isfinite(norm):
            raise FloatingPointError(f"the critic's gradient norm is {norm}: lower trainer.rl.value_lr")
        return sum(gather(loss))

    def _passes(self, states: Sequence[State], returns: Sequence[Array], count: int) -> float:
        """Add up the gradients of a step on `count` states in all processes; this process's part of the loss."""
        micros = self._micro(states)
        passes = len(micros) if self.sharded is None else max(gather(len(micros)))
        loss = 0.0
        for k, index in enumerate(micros):
            scaled, agent = self._scaled([states[i] for i in index], self.sharded or self.reader)
            flat_returns = torch.as_tensor(np.concatenate([returns[i] for i in index]), device=scaled.device)
            error = (scaled - self.head.target(flat_returns.float(), agent)).square().sum() / count
            self._backward(error, last=k == passes - 1)
            loss += float(error.detach())
        for k in range(len(micros), passes):  # under ZeRO every process makes as many passes as the others
            self._backward(0.0 * self._scaled([self._blank()], self.sharded or self.reader)[0].sum(), k == passes - 1)
        return loss

    def _backward(self, loss: Tensor, last: bool) -> None:
        (self.sharded or self.learner).backward(loss, last)

    def _take_step(self) -> float:
        """One step of reader and top; the larger norm of what is clipped together."""
        if self.sharded is None:
            return self.learner.step()
        for p in self.learner.module.trainable_parameters():  # DeepSpeed's loss is as many times as large
            p.grad = None if p.grad is None else p.grad / world()
        return max(self.sharded.step(), self.learner.step())

    def _blank(self) -> State:
        """A state that is read for its graph alone."""
        one, numbers = np.zeros(1, np.int64), np.zeros(self._numbers, np.float32)
        return State(one, one, one, numbers[None], one, numbers, episode=0, last=0)

    # ------------------------------------------------------------- checkpoint

    def state(self, wanted: bool = True) -> dict[str, Any]:
        """Weights, scale and the optimiser that all processes have alike, in CPU memory, where they are `wanted`; every
        process must ask."""
        with self._whole():
            weights = [p.detach().to("cpu", copy=True) for p in self.learned if wanted]
        if not wanted:
            return {}
        scale = {name: value.to("cpu", copy=True) for name, value in self.head.named_buffers()}
        return {"weights": weights, "scale": scale, "optimizer": self.learner.state()}

    def own_state(self) -> dict[str, Any]:
        """This process's part of what DeepSpeed has sharded; {} without it."""
        return {} if self.sharded is None else self.sharded.state()

    @torch.no_grad()
    def load_state(self, state: dict[str, Any], own: dict[str, Any], parts: Sequence[dict[str, Any]] = ()) -> None:
        """Undo `state` and `own_state` in place; parts: those of all processes that saved, where they were another
        number."""

        def fill() -> None:
            for parameter, saved in zip(self.learned, state["weights"], strict=True):
                parameter.copy_(saved)

        for name, value in self.head.named_buffers():
            value.copy_(state["scale"][name])
        if self.sharded is None:
            fill()
        elif own:
            self.sharded.change(fill)
            self.sharded.load_state(own, parts)
        else:
            raise BadInput("this run's critic was saved before critics were sharded: train anew with resume=never.")
        self.learner.load_state(state["optimizer"])
