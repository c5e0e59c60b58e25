"""Bytes that a training pass holds at its peak besides weights and gradients: counted on the code that trains.

Two and three layers of the model at its true width make one pass on tensors that have shapes and no memory (torch's
fake tensors); what a further layer adds is the difference. So the count knows every copy that the code makes, of any
architecture, and takes a fraction of a second.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal
from unittest.mock import patch

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ghar.trainers.rl.fast.rows import Batch


@dataclass(frozen=True)
class TrainingPass:
    """One forward (and, but for "rollout", backward) pass. architecture: a transformers configuration as JSON; tokens:
    of the batch, in `rows` lines; replies: those with a loss; adapters16: LoRA weights in the model's 16 bits, as
    DeepSpeed has them, and not in float32; trees: lines are trees of rows (rl.fast.rows), where the model takes them,
    and bring the mask of what their tokens see."""

    kind: Literal["sft", "rl", "rollout"]
    architecture: str
    layers: int
    dtype: str
    finetune: Literal["lora", "full"]
    rank: int
    critic: Literal["head", "own"]
    checkpointing: bool
    adapters16: bool
    rows: int
    tokens: int
    replies: int
    trees: bool = False


@cache
def activations(one: TrainingPass) -> int:
    """Bytes at the peak of a pass, above weights and gradients that are there before it."""
    if one.layers in (2, 3):
        return _peak(one, one.layers)
    two, three = (_peak(one, layers) for layers in (2, 3))
    return two + (one.layers - 2) * (three - two)


class LiveBytes(TorchDispatchMode):
    """Counts the bytes of all storages that are made within and not yet gone: `now`, and the `peak` so far."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._storages: weakref.WeakSet[Any] = weakref.WeakSet()

    def overlook(self, tensors: Iterator[torch.Tensor]) -> None:
        """Leave out what is there already."""
        for tensor in tensors:
            self._storages.add(tensor.untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, torch.Tensor) and (storage := value.untyped_storage()) not in self._storages:
                self._storages.add(storage)
                self.now += storage.nbytes()
                weakref.finalize(storage, self._gone, storage.nbytes())
        self.peak = max(self.peak, self.now)
        return out

    def _gone(self, size: int) -> None:
        self.now -= size


def _peak(one: TrainingPass, layers: int) -> int:
    with torch.device("meta"):
        base = architecture(one.architecture, layers, one.dtype)
        module, run = _KINDS[one.kind](one, base)
    if one.adapters16:
        module.to(getattr(torch, one.dtype))
    with _weightless(), LiveBytes() as live:
        _imagine(module)
        for parameter in module.parameters():
            parameter.grad = torch.empty_like(parameter) if parameter.requires_grad else None
        live.overlook(tensor for p in module.parameters() for tensor in (p, p.grad) if tensor is not None)
        live.now = live.peak = 0
        run()
    return live.peak


def architecture(text: str, layers: int | None = None, dtype: str = "float32") -> Any:
    """A causal language model of a configuration in JSON, with as many layers; on torch's meta device without
    weights."""
    from ghar.llm import import_transformers  # noqa: F401

    # isort: split
    from transformers import AutoConfig, AutoModelForCausalLM

    values = json.loads(text)
    if layers is not None:
        values |= {"num_hidden_layers": layers}
        if isinstance(kinds := values.get("layer_types"), list):
            values["layer_types"] = (kinds * layers)[:layers]
    kind = values.pop("model_type")
    return AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **values), dtype=getattr(torch, dtype))


@contextmanager
def _weightless() -> Iterator[None]:
    """Tensors have shapes and no memory. transformers takes such tensors for packed rows and would build a mask that
    real ones do not need."""
    with FakeTensorMode(), patch("transformers.masking_utils.find_packed_sequence_indices", lambda positions: None):
        yield


def _imagine(module: torch.nn.Module) -> None:
    """Weights on the meta device become fake ones, which attention's kernels take for a processor's."""
    for part in module.modules():
        for name, old in part._parameters.items():
            if old is not None:
                part._parameters[name] = torch.nn.Parameter(_like(old), requires_grad=old.requires_grad)
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = _like(buffer)
    tied: Any = module
    for name in ("policy", "base_model"):
        tied = getattr(tied, name, tied)
    if hasattr(tied, "tie_weights"):
        tied.tie_weights()


def _like(old: torch.Tensor) -> torch.Tensor:
    return torch.empty(old.shape, dtype=old.dtype, device="cpu")


def _rl(one: TrainingPass, base: Any) -> tuple[torch.nn.Module, Callable[[], None]]:
    from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig

    how = ActorCriticConfig(
        one.finetune, one.rank, critic=one.critic, detach=True, reference=False, checkpointing=one.checkpointing
    )
    actor = ActorCritic(base, how)

    def run() -> None:
        scores = actor.score_batch(planned_batch(one, one.trees and actor.shares), entropy_gradient=False)
        (scores.logp.sum() + scores.values.sum()).backward()

    return actor, run


def _sft(one: TrainingPass, base: Any) -> tuple[torch.nn.Module, Callable[[], None]]:
    from peft import LoraConfig, get_peft_model
    from torch.nn.functional import cross_entropy

    from ghar.trainers.rl.fast.gated import keep_less
    from ghar.trainers.rl.fast.lora import fuse
    from ghar.trainers.sft.packing import can_share, logits_of

    if one.checkpointing:
        base.gradient_checkpointing_enable({"use_reentrant": False})
    model: Any = base
    if one.finetune == "lora":
        lora = LoraConfig(r=one.rank, lora_alpha=one.rank, target_modules="all-linear", task_type="CAUSAL_LM")
        model = get_peft_model(base, lora)
        fuse(model)
    keep_less(base, not one.checkpointing)
    model.train()

    def run() -> None:
        batch = planned_batch(one, one.trees and can_share(base))
        cross_entropy(logits_of(model, model, batch), batch.target, reduction="sum").backward()

    return model, run


def planned_batch(one: TrainingPass, trees: bool) -> Batch:
    """Shape a batch as `rl.fast.rows.collate` does of such rows, or of such trees; each line ends with its replies."""
    length, reply = one.tokens // one.rows, max(1, one.replies // one.rows)
    shape, ids = (one.rows, length), partial(torch.zeros, dtype=torch.long)
    return Batch(
        tokens=ids(shape),
        row=torch.arange(one.rows).repeat_interleave(reply),
        position=torch.arange(length - reply - 1, length - 1).repeat(one.rows),
        target=ids(one.rows * reply),
        agent=ids(one.rows * reply),
        allowed=None,
        restricted=torch.zeros(one.rows * reply, dtype=torch.bool),
        place=ids(shape) if trees else None,
        seen=torch.ones((one.rows, 1, length, length), dtype=torch.bool) if trees else None,
    )


def _rollout(one: TrainingPass, base: Any) -> tuple[torch.nn.Module, Callable[[], None]]:
    def run() -> None:
        with torch.no_grad():
            base(input_ids=torch.zeros(one.rows, one.tokens // one.rows, dtype=torch.long), logits_to_keep=1)

    return base.requires_grad_(False), run


_KINDS: dict[str, Callable[..., tuple[torch.nn.Module, Callable[[], None]]]] = {
    "rl": _rl, "sft": _sft, "rollout": _rollout,
}  # fmt: skip
