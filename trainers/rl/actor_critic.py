"""One causal language model as actor, critic and reference (Eqs. 16-18, GHAR).

LoRA (default for large models): one frozen base, the actor is its adapter, the reference is the base with adapters
switched off. Full fine-tuning: the actor is the model itself and the reference, when something needs one, a frozen
copy. The critic is a linear value head per agent on the actor's last hidden state, or one of its own
(`ghar.trainers.rl.critic`), for which LoRA keeps a second adapter here.
Everything runs in eval mode, so that log-probs are those the engine sampled with.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ghar.llm.logits import transform_of
from ghar.trainers.rl.fast.gated import keep_less
from ghar.trainers.rl.fast.head import token_scores
from ghar.trainers.rl.fast.last_layer import only_at, plain, trunk_of
from ghar.trainers.rl.fast.rows import Batch, collate, packed
from ghar.trainers.rl.trajectory import Row


@dataclass(frozen=True)
class Scores:
    """Per completion token, flat, rows in the order they were given: float32 [T] each.

    logp: log-probability under the distribution sampled from; values: V of the state before the token;
    entropy: of that distribution, in nats.
    """

    logp: Tensor
    values: Tensor
    entropy: Tensor


@dataclass(frozen=True)
class ActorCriticConfig:
    """How the model is trained.

    finetune: "lora" or "full"; rank, alpha: of the LoRA adapters; critic: "head" (on the actor's trunk) or "own"
    (`ghar.trainers.rl.critic`: the heads here stay unused); detach: keep the value loss out of the actor's trunk;
    reference: keep a reference policy (free with LoRA, a copy of the weights with "full"); temperature: of sampling;
    checkpointing: recompute the layers' activations in the backward pass; agents: a value head for each.
    """

    finetune: Literal["lora", "full"] = "lora"
    rank: int = 16
    alpha: int = 32
    critic: Literal["head", "own"] = "head"
    detach: bool = False
    reference: bool = True
    temperature: float = 1.0
    checkpointing: bool = False
    agents: tuple[str, ...] = ("agent",)
    seed: int = 0


class ActorCritic(nn.Module):
    """Actor, critic and reference around one transformers causal LM (which becomes part of this module)."""

    def __init__(self, base: Any, cfg: ActorCriticConfig) -> None:
        super().__init__()
        self.cfg = cfg
        if cfg.checkpointing:
            base.gradient_checkpointing_enable({"use_reentrant": False})
        keep_less(base, not cfg.checkpointing)
        hidden = base.get_input_embeddings().weight
        self._logits = transform_of(base.config)
        self.reference = None
        if cfg.finetune == "lora":
            self.policy = _add_adapters(base, cfg)
        else:
            base.requires_grad_(True)
            self.policy = base
            if cfg.reference:
                self.reference = copy.deepcopy(base).requires_grad_(False)
        self.heads = nn.ModuleDict({agent: _zero_head(hidden.shape[1]) for agent in cfg.agents}).to(hidden.device)
        self.critic_adapter = [p for name, p in self.policy.named_parameters() if ".critic." in name]
        of_critic = {id(p) for p in self.critic_adapter}
        self._trainable = [p for p in self.parameters() if p.requires_grad and id(p) not in of_critic]
        self._unfreeze()
        self.eval()

    # ---------------------------------------------------------------- views

    @property
    def model(self) -> Any:
        """The actor as a causal LM: forward(input_ids, attention_mask, past_key_values, use_cache), for engines."""
        return self.policy

    @property
    def device(self) -> torch.device:
        return next(self.parameters()).device

    def trainable_parameters(self) -> list[nn.Parameter]:
        """Parameters the optimiser steps on, in a fixed order."""
        return list(self._trainable)

    def parameter_groups(self, lr: float, value_lr: float) -> list[dict[str, Any]]:
        """Groups for an optimiser: the policy at `lr`, the value heads at `value_lr`."""
        heads = list(self.heads.parameters())
        head_ids = {id(p) for p in heads}
        policy = [p for p in self._trainable if id(p) not in head_ids]
        return [{"params": policy, "lr": lr}, {"params": heads, "lr": value_lr}]

    @property
    def critic_is_untrained(self) -> bool:
        """Whether every value head is still zero."""
        return not any(bool(p.any()) for p in self.heads.parameters())

    @torch.no_grad()
    def start_critic_at(self, value: float) -> None:
        """Make every value head say `value`: the mean return is where a critic should begin, not zero."""
        for name, parameter in self.heads.named_parameters():
            if name.endswith("bias"):
                parameter.fill_(value)

    def train(self, mode: bool = True) -> ActorCritic:
        """Stay in eval mode: dropout would make the trainer's log-probs differ from the engine's."""
        return super().train(False)

    def trainable_state(self) -> dict[str, Tensor]:
        """Named trainable weights: adapters or the whole model, and the value heads."""
        wanted = {id(p) for p in self._trainable}
        return {name: p.detach() for name, p in self.named_parameters() if id(p) in wanted}

    def load_trainable_state(self, state: Mapping[str, Tensor]) -> None:
        """Copy weights saved by `trainable_state`; ValueError when a name or a shape does not fit this model."""
        own = self.trainable_state()
        wrong = sorted(set(own) ^ set(state)) or sorted(n for n in own if own[n].shape != state[n].shape)
        if wrong:
            raise ValueError(f"weights of another model: {len(wrong)} names or shapes differ, first {wrong[0]}")
        with torch.no_grad():
            for name, parameter in own.items():
                parameter.copy_(state[name])

    @contextmanager
    def holding(self, state: Mapping[str, Tensor]) -> Iterator[None]:
        """For the duration, with other trainable weights, such as earlier ones; its own come back to the last bit."""
        own = {name: weight.cpu().clone() for name, weight in self.trainable_state().items()}
        self.load_trainable_state(state)
        try:
            yield
        finally:
            self.load_trainable_state(own)

    @contextmanager
    def merged(self) -> Iterator[Any]:
        """The actor as a plain model: LoRA is folded into the base for the duration, which is then restored exactly.

        Sampling is faster so. Restoring from a copy, not by subtraction, keeps the reference from drifting.
        """
        if self.cfg.finetune == "full":
            yield self.policy
            return
        from ghar.llm.adapter import fold

        saved = fold(self.policy, "default")
        try:
            yield self.policy
        finally:
            self.policy.base_model.unmerge_adapter()
            with torch.no_grad():
                for layer, weight in saved:
                    layer.base_layer.weight.copy_(weight)
            self._unfreeze()

    @contextmanager
    def reading_as_critic(self) -> Iterator[None]:
        """For the duration the trunk reads with the critic's adapter (finetune="lora", critic="own")."""
        self.policy.set_adapter("critic")
        try:
            yield
        finally:
            self.policy.set_adapter("default")
            self._unfreeze()

    # ---------------------------------------------------------------- scores

    @property
    def shares(self) -> bool:
        """Whether rows that begin alike can be one tree (`rl.fast.rows`): the model's attention takes a mask of
        ours, and has no window of its own."""
        config = plain(self.policy).config
        return config._attn_implementation == "sdpa" and getattr(config, "sliding_window", None) is None

    def forward(self, rows: Sequence[Row], entropy_gradient: bool, trees: Sequence[int]) -> tuple[Tensor, ...]:
        """The columns of `score`; for DeepSpeed, which wants to see tensors pass."""
        return _columns(self.score(rows, entropy_gradient, trees))

    def score(self, rows: Sequence[Row], entropy_gradient: bool = True, trees: Sequence[int] = ()) -> Scores:
        """Log-probs, values and entropy of one micro-batch, with gradients. All rows in one padded forward pass.

        entropy_gradient=False: entropy is only looked at, which saves passes over the vocabulary. trees: how many rows
        share each line of the batch (`ghar.trainers.rl.fast.rows.packed`), () for one each.
        """
        return self.score_batch(collate(rows, self.device, trees), entropy_gradient)

    def score_batch(self, batch: Batch, entropy_gradient: bool = True) -> Scores:
        """`score` of rows that are collated."""
        hidden = self._hidden(self.policy, batch)
        logp, entropy = self._token_scores(self.policy, hidden, batch, entropy_gradient)
        return Scores(logp, self._values(hidden, batch), entropy)

    @torch.no_grad()
    def evaluate(self, rows: Sequence[Row], token_budget: int) -> Scores:
        """`score` for any number of rows without gradients."""
        parts = self._over(rows, token_budget, lambda part, trees: _columns(self.score(part, trees=trees)))
        return Scores(*parts)

    @torch.no_grad()
    def reference_logp(self, rows: Sequence[Row], token_budget: int) -> Tensor:
        """Log-probs [T] under the reference policy; ValueError when none was kept."""
        if self.cfg.finetune == "full" and self.reference is None:
            raise ValueError("this actor keeps no reference policy: build it with reference=True")
        model = self.policy if self.reference is None else self.reference

        def logp(part: Sequence[Row], trees: Sequence[int]) -> tuple[Tensor, ...]:
            batch = collate(part, self.device, trees)
            return (self._token_scores(model, self._hidden(model, batch), batch)[0],)

        off = self.policy.disable_adapter() if self.cfg.finetune == "lora" else nullcontext()
        with off:
            result = self._over(rows, token_budget, logp)[0]
        self._unfreeze()
        return result

    @torch.no_grad()
    def value_only(self, rows: Sequence[Row], token_budget: int) -> Tensor:
        """Values [T] without the language-model head, which is most of the cost of a small model."""

        def values(part: Sequence[Row], trees: Sequence[int]) -> tuple[Tensor, ...]:
            batch = collate(part, self.device, trees)
            return (self._values(self._hidden(self.policy, batch), batch),)

        return self._over(rows, token_budget, values)[0]

    def _over(
        self,
        rows: Sequence[Row],
        token_budget: int,
        compute: Callable[[Sequence[Row], Sequence[int]], tuple[Tensor, ...]],
    ) -> list[Tensor]:
        """Run `compute` on micro-batches and put its flat results back into the order of `rows`."""
        sizes = [len(row.tokens) - row.prompt for row in rows]
        pieces: list[tuple[Tensor, ...]] = [() for _ in rows]
        for micro in packed(rows, token_budget, self.shares):
            index = micro.rows
            columns = compute([rows[i] for i in index], micro.trees)
            split = [column.split([sizes[i] for i in index]) for column in columns]
            for k, i in enumerate(index):
                pieces[i] = tuple(column[k] for column in split)
        if not rows:
            return [torch.zeros(0, device=self.device)] * 3
        return [torch.cat(column) for column in zip(*pieces, strict=True)]

    def _hidden(self, model: Any, batch: Batch) -> Tensor:
        """Trunk states [T, H] at the positions that predict completion tokens."""
        trunk = trunk_of(model)
        if self.cfg.checkpointing:
            recomputing(trunk)
        with only_at(model, batch.row, batch.position):
            # rows are padded on the right, where nothing that counts looks, so causal attention needs no mask
            how = {"position_ids": batch.place, "attention_mask": batch.seen, "use_cache": False}
            return trunk(input_ids=batch.tokens, **how).last_hidden_state[0]

    def _values(self, hidden: Tensor, batch: Batch) -> Tensor:
        """Values [T], each by the head of the row's agent."""
        if self.cfg.detach:
            hidden = hidden.detach()
        hidden = hidden.to(next(self.heads.parameters()).dtype)
        every = torch.cat([self.heads[agent](hidden) for agent in self.cfg.agents], dim=1)
        return every.gather(1, batch.agent[:, None]).squeeze(1).float()

    def _token_scores(
        self, model: Any, hidden: Tensor, batch: Batch, entropy_gradient: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Log-prob and entropy [T] of the batch's targets."""
        head = plain(model).get_output_embeddings()
        limits = (batch.allowed, batch.restricted)
        scores = head, hidden, batch.target, *limits, self.cfg.temperature, entropy_gradient
        return token_scores(*scores, transform=self._logits)

    def _unfreeze(self) -> None:
        """peft changes requires_grad whenever it switches adapters; ours are always trainable."""
        for parameter in (*self._trainable, *self.critic_adapter):
            parameter.requires_grad_(True)


def recomputing(trunk: Any) -> None:
    """Have the layers' activations recomputed in the next backward pass: transformers checkpoints layers in training
    mode only; what is inside them, dropout too, stays in eval."""
    for layer in trunk.layers:
        layer.training = torch.is_grad_enabled()


def _columns(scores: Scores) -> tuple[Tensor, ...]:
    return scores.logp, scores.values, scores.entropy


def _add_adapters(base: Any, cfg: ActorCriticConfig) -> Any:
    """Freeze `base`; put the actor's LoRA adapter ("default") and perhaps the critic's on all linear layers."""
    from peft import LoraConfig, get_peft_model

    from ghar.trainers.rl.fast.lora import fuse

    # LoRA's A matrices are drawn from the global generator: seed it here and put it back.
    with torch.random.fork_rng():
        torch.manual_seed(cfg.seed)
        lora = LoraConfig(r=cfg.rank, lora_alpha=cfg.alpha, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(base, lora)
        fuse(model)
        if cfg.critic == "own":
            model.add_adapter("critic", copy.deepcopy(lora))
            model.set_adapter("default")
    return model


def _zero_head(width: int) -> nn.Module:
    """V = 0 at the start: the first advantages are the plain returns, and no random number is drawn."""
    head = nn.utils.skip_init(nn.Linear, width, 1)
    for parameter in head.parameters():
        nn.init.zeros_(parameter)
    return head
