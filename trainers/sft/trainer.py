"""The trainer behind `ghar.trainers.sft.run`: TRL's, with a loss over completions alone, weights of pairs, and its own
validation loss.

TRL scores every position on a machine without Triton, which here is most of a step's time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from trl.trainer.sft_trainer import SFTTrainer

from ghar.trainers.rl.fast.last_layer import only_at
from ghar.trainers.runs.distributed import gather, rank, world
from ghar.trainers.sft.packing import can_share, packed_logits, repacked
from ghar.trainers.sft.pairs import IGNORE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

Collate = Callable[[list[dict[str, Any]]], Mapping[str, Any]]  # rows to one batch of tensors


class CompletionTrainer(SFTTrainer):
    """The loss of `pairs.TokenExample` over the whole batch of a step, micro-batches and processes alike."""

    def train(self, *args: Any, **kwargs: Any) -> Any:
        """Train, and time it: each line of the log says the "seconds" of training before it, of earlier starts too."""
        self._began, self._earlier = time.monotonic(), None
        return super().train(*args, **kwargs)

    def _trained_seconds(self) -> float:
        """Seconds of training so far. An earlier start counts up to the last line before its checkpoint: what came
        after is done again. NaN where that line was written before seconds were kept."""
        if self._earlier is None:  # the first line of this start
            history = self.state.log_history
            self._earlier = float(history[-1].get("seconds", np.nan)) if history else 0.0
        return self._earlier + time.monotonic() - self._began

    def compute_loss(
        self, model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        if "pairs" in inputs:
            logits, target, row = packed_logits(model, self.model, inputs["pairs"])
        else:
            logits, target, row = completion_logits(model, cast("PreTrainedModel", self.model), inputs)
        items = len(target) if num_items_in_batch is None else num_items_in_batch
        if "weights" in inputs:
            # a NumPy array: transformers would round a tensor of numbers to the model's dtype
            weights = torch.as_tensor(inputs["weights"], dtype=torch.float32, device=row.device)[row]
            items = self.args.train_batch_size * self.args.gradient_accumulation_steps * self.accelerator.num_processes
            loss = (cross_entropy(logits, target, reduction="none") * weights).sum() / items
        else:
            loss = cross_entropy(logits, target, reduction="sum") / items
        right = (logits.detach().argmax(-1) == target).sum()
        self._right = torch.stack([right, right.new_tensor(len(target))]) + getattr(self, "_right", 0)
        # items are those of all processes, whose gradients are then averaged
        return loss * self.accelerator.num_processes if num_items_in_batch is not None else loss

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor | int | None]:
        """The micro-batches of a step, pairs that begin alike in one pass. DeepSpeed counts its passes: there each has
        its pairs as they come."""
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if not batches or items is None or self.is_deepspeed_enabled or not can_share(self.model):
            return batches, items
        return repacked(batches), items

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        """Forward and backward of one micro-batch, or of the passes it was packed into; the last of a step's adds up
        the gradients of all processes."""
        if "packed" not in inputs:
            return super().training_step(model, inputs, num_items_in_batch)
        loss = torch.zeros((), device=self.args.device)
        for number, pairs in enumerate(inputs["packed"], start=1):
            given = {"pairs": pairs} if pairs.weights is None else {"pairs": pairs, "weights": pairs.weights}
            last = number == len(inputs["packed"])
            with nullcontext() if last else self.accelerator.no_sync(model):
                loss += super().training_step(model, given, num_items_in_batch)
        return loss

    def floating_point_ops(self, inputs: Any) -> int:
        """Return 0: nobody reads this sum, for which the model's parameters would be counted in every pass."""
        return 0

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """With the accuracy over all completion tokens since the last time, however they were shared out."""
        logs["seconds"] = self._trained_seconds()
        counts = getattr(self, "_right", None)
        if self.model.training and "loss" in logs and counts is not None:  # type: ignore[union-attr]
            right, tokens = np.sum(gather(counts.tolist()), axis=0)
            self._metrics["train"]["accuracy"] = [float(right / tokens)]
            del self._right
        super().log(logs, start_time)

    def evaluate(self, eval_dataset: Any = None, ignore_keys: Any = None, metric_key_prefix: str = "eval") -> Any:
        """The mean over completion tokens of all validation pairs, exactly, however many processes there are."""
        model: Any = self.model_wrapped
        model.eval()
        rows: Any = list(self.eval_dataset if eval_dataset is None else eval_dataset)  # type: ignore[arg-type]
        batch = self.args.per_device_train_batch_size
        loss = completion_loss(model, cast("PreTrainedModel", self.model), rows, self.data_collator, batch)
        metrics = {f"{metric_key_prefix}_loss": loss}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        model.train()
        return metrics


def completion_logits(
    model: nn.Module, inner: PreTrainedModel, inputs: Mapping[str, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """Of every completion token in a batch: logits float32 [n, vocabulary], id [n], row [n].

    inner: the model itself, in what `model` may have around it for several processes.
    """
    labels = inputs["labels"]
    row, column = (labels != IGNORE).nonzero(as_tuple=True)
    logits = logits_at(model, inner, inputs["input_ids"], row, column - 1)  # a token is predicted one column before
    return logits, labels[row, column], row


def logits_at(model: nn.Module, inner: PreTrainedModel, ids: Tensor, row: Tensor, column: Tensor) -> Tensor:
    """Logits float32 [n, vocabulary] at the states of ids [R, L] in row [n] and column [n]."""
    with only_at(inner, row, column):
        return model(input_ids=ids, use_cache=False).logits[0].float()


@torch.no_grad()
def completion_loss(
    model: nn.Module, inner: PreTrainedModel, rows: Sequence[dict[str, Any]], collate: Collate, batch: int
) -> float:
    """Mean -log p of the completion tokens of `rows`, in nats; weights are left aside.

    Processes take batches in turn, and all make as many passes (ZeRO-3 needs them together).
    """
    ordered = sorted(rows, key=lambda row: len(row["input_ids"]))
    batches = [ordered[start : start + batch] for start in range(0, len(ordered), batch)]
    total, tokens = 0.0, 0
    for first in range(0, len(batches), world()):
        mine = first + rank()
        inputs = collate(batches[min(mine, len(batches) - 1)])
        moved = {name: inputs[name].to(inner.device) for name in ("input_ids", "labels")}
        logits, target, _ = completion_logits(model, inner, moved)
        if mine < len(batches):
            total += float(cross_entropy(logits, target, reduction="sum"))
            tokens += len(target)
    sums = gather((total, tokens))
    return sum(part for part, _ in sums) / sum(count for _, count in sums)
