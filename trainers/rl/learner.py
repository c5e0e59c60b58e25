"""What is trained and its optimiser, plain or under DeepSpeed, behind the few calls an update makes.

An update runs micro-batches through the learner and `backward`, then `step`. With ZeRO-3 a process holds a part of
every weight: whatever else reads weights (rollouts, log-probs before an update, checkpoints) does so inside `whole`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from ghar.config import Config, DeepspeedConfig
from ghar.trainers.rl.actor_critic import ActorCritic, Scores
from ghar.trainers.rl.resharding import layout_of, masters_of, reshard
from ghar.trainers.rl.settings import learning_rate
from ghar.trainers.rl.trajectory import Row
from ghar.trainers.runs.distributed import load_deepspeed, rank, world
from ghar.trainers.runs.zero import zero_config


class Trainable(Protocol):
    """A module that knows which of its parameters are trained."""

    def trainable_parameters(self) -> list[nn.Parameter]:
        """In a fixed order."""
        ...

    def parameters(self) -> Iterator[nn.Parameter]:
        """All of them."""
        ...

    def __call__(self, *inputs: Any) -> Any:
        """The forward pass."""
        ...


M = TypeVar("M", bound=Trainable)


class PlainLearner(Generic[M]):
    """`module` and `optimizer` as they are; several processes hold everything each and add up their gradients."""

    even = False  # processes may make different numbers of passes
    parted = False  # every process has the same `state`

    def __init__(self, module: M, optimizer: torch.optim.Optimizer, max_grad_norm: float) -> None:
        self.module, self.optimizer, self.max_grad_norm = module, optimizer, max_grad_norm

    def __call__(self, *inputs: Any) -> Any:
        """The module's forward pass."""
        return self.module(*inputs)

    def take(self, share: float) -> None:
        """Steps from here on take this share of the learning rates that the optimiser was built with."""
        _take(self.optimizer.param_groups, share)

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add the gradient of `loss`."""
        loss.backward()

    def step(self) -> float:
        """One optimiser step; the global norm of its gradient before clipping (not finite: the step was not made)."""
        parameters = self.module.trainable_parameters()
        if world() > 1:
            for p in parameters:  # the same collective calls in every process, whatever it had rows for
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(p.grad)
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm))
        if np.isfinite(norm):
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return norm

    def whole(self) -> AbstractContextManager[None]:
        """Every process holds all weights anyway."""
        return nullcontext()

    def change(self, work: Callable[[], None]) -> None:
        """`work` may change trainable weights in place."""
        work()

    def state(self, copied: bool = True) -> dict[str, Any]:
        """The optimiser's state in CPU memory: a copy, or where it lies there itself."""
        return _on_cpu(self.optimizer.state_dict(), copied)

    def load_state(self, state: dict[str, Any], parts: Sequence[dict[str, Any]] = ()) -> None:
        """Undo `state` in place; `parts` are for DeepSpeed."""
        self.optimizer.load_state_dict(state)


class DeepSpeedLearner(Generic[M]):
    """`module` and `optimizer` (torch's, over the module's trainable parameters) trained by DeepSpeed.

    dtype: of the model's weights ("float32", "bfloat16"). Needs a process group (`distributed.together`).
    """

    even = True  # every process must make as many passes as the others

    def __init__(
        self,
        module: M,
        optimizer: torch.optim.Optimizer,
        settings: DeepspeedConfig,
        dtype: str,
        max_grad_norm: float,
    ) -> None:
        self.module, self.stage = module, settings.stage
        self.parted = bool(settings.stage)  # every process has a part of `state`
        # without ZeRO nothing reports the norm: `step` clips by itself
        config = zero_config(settings, dtype, max_grad_norm if settings.stage else 0.0)
        self.max_grad_norm = max_grad_norm
        self.engine: Any = load_deepspeed().initialize(model=module, optimizer=optimizer, config=config)[0]

    def __call__(self, *inputs: Any) -> Any:
        """The module's forward pass, through DeepSpeed."""
        return self.engine(*inputs)

    def take(self, share: float) -> None:
        """Steps from here on take this share of the learning rates that the optimiser was built with."""
        _take(self.engine.optimizer.param_groups, share)

    def backward(self, loss: Tensor, last: bool) -> None:
        """Add the gradient of `loss` (this process's part of a sum over all); last: of this step."""
        self.engine.set_gradient_accumulation_boundary(last)
        self.engine.backward(loss * world(), scale_wrt_gas=False)  # DeepSpeed averages over processes

    def step(self) -> float:
        """One optimiser step; the global norm of its gradient before clipping (inf: the step was not made)."""
        if self.stage:
            self.engine.step()
            return float(self.engine.get_global_grad_norm())
        norm = float(torch.nn.utils.clip_grad_norm_(self.module.trainable_parameters(), self.max_grad_norm))
        if np.isfinite(norm):
            self.engine.step()
        return norm

    @contextmanager
    def whole(self) -> Iterator[None]:
        """For the duration every process holds all weights, and modules can be called freely (not for training)."""
        if self.stage != 3:
            yield
            return
        import deepspeed  # pyright: ignore[reportMissingImports]
        from trl.models.utils import add_hooks, remove_hooks

        with deepspeed.zero.GatheredParameters(list(self.module.parameters())):
            remove_hooks(self.engine)
            try:
                yield
            finally:
                add_hooks(self.engine)

    def change(self, work: Callable[[], None]) -> None:
        """`work` may change trainable weights in place (the same way in every process); the optimiser learns of it."""
        inner = self.engine.optimizer
        if self.stage != 3:
            work()
            if hasattr(inner, "refresh_fp32_params"):  # torch's own optimiser, in float32 without ZeRO, works on them
                inner.refresh_fp32_params()
            return
        import deepspeed  # pyright: ignore[reportMissingImports]

        with deepspeed.zero.GatheredParameters(self.module.trainable_parameters(), modifier_rank=0), torch.no_grad():
            work()
        for weights, masters in zip(inner.fp16_partitioned_groups_flat, self._masters(), strict=True):
            if masters is not weights:
                masters.data.copy_(weights.data)

    def state(self, copied: bool = True) -> dict[str, Any]:
        """This process's part of the optimiser's state and of its float32 weights, in CPU memory: a copy, or where it
        lies there itself."""
        with self._inner_groups() as optimizer:
            own = {"optimizer": optimizer.state_dict(), "masters": [m.detach() for m in self._masters()]}
            return _on_cpu(own, copied)

    def load_state(self, state: dict[str, Any], parts: Sequence[dict[str, Any]] = ()) -> None:
        """Undo `state` in place, after the weights were loaded.

        parts: the states of all processes that saved, where they were another number than there are now.
        """
        with self._inner_groups() as optimizer:
            if parts and self.parted:
                layout = layout_of(self.engine.optimizer, self.stage == 3, world())
                state = reshard(parts, layout, optimizer.state_dict(), rank())
            optimizer.load_state_dict(state["optimizer"])
        for own, saved in zip(self._masters(), state["masters"], strict=True):
            own.data.copy_(saved)

    def _masters(self) -> list[Tensor]:
        return masters_of(self.engine.optimizer, self.stage == 3) if self.stage else []

    @contextmanager
    def _inner_groups(self) -> Iterator[torch.optim.Optimizer]:
        """Torch's optimiser with its parameters in place (ZeRO-3 takes them away between steps)."""
        outer = self.engine.optimizer
        if self.stage != 3:
            yield outer.optimizer if self.stage else outer
            return
        outer._set_fp32_optimizer_param_groups()
        try:
            yield outer.optimizer
        finally:
            outer._clear_fp32_optimizer_param_groups()


Learner: TypeAlias = "PlainLearner[ActorCritic] | DeepSpeedLearner[ActorCritic]"


def score(learner: Learner, rows: Sequence[Row], entropy_gradient: bool = True, trees: Sequence[int] = ()) -> Scores:
    """`ActorCritic.score`, through the learner."""
    return Scores(*learner(rows, entropy_gradient, trees))


def _take(groups: Sequence[dict[str, Any]], share: float) -> None:
    for group in groups:
        group["lr"] = share * group.setdefault("initial_lr", group["lr"])


def _on_cpu(state: Any, copied: bool) -> Any:
    if isinstance(state, Tensor):
        return state.to("cpu", copy=copied)
    if isinstance(state, dict):
        return {key: _on_cpu(value, copied) for key, value in state.items()}
    return [_on_cpu(value, copied) for value in state] if isinstance(state, list) else state


def learner_of(config: Config, actor: ActorCritic) -> Learner:
    """AdamW on the actor's trainable weights, at the configured rates, shared out as the configuration says."""
    rl = config.trainer.rl
    optimizer = torch.optim.AdamW(actor.parameter_groups(learning_rate(config), rl.value_lr), weight_decay=0.0)
    if config.deepspeed.stage is None:
        return PlainLearner(actor, optimizer, rl.max_grad_norm)
    return DeepSpeedLearner(actor, optimizer, config.deepspeed, config.model.dtype, rl.max_grad_norm)
