"""New weights for a running vLLM: whole ones through its weight-update API, adapters by exchange.

An engine on one device shares this process and takes tensors by reference. On several, each has a worker process, which
is sent plain checkpoint tensors, a parcel at a time, and keeps its own part of each.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.weight_transfer.base import (  # pyright: ignore[reportMissingImports]
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import (  # pyright: ignore[reportMissingImports]
    WeightTransferEngineFactory,
)
from vllm.lora.request import LoRARequest  # pyright: ignore[reportMissingImports]
from vllm.v1.engine.exceptions import EngineDeadError  # pyright: ignore[reportMissingImports]

BACKEND = "ghar_by_value"
PARCEL = 1 << 28  # bytes sent to the workers at once: each holds a parcel in host memory while it reads it


@dataclass
class _Init(WeightTransferInitInfo):
    """Nothing to agree on: the trainer hands over the tensors themselves."""


@dataclass
class _Update(WeightTransferUpdateInfo):
    """Named tensors of a checkpoint, or some of them."""

    weights: Sequence[tuple[str, Tensor]]


class TensorTransfer(WeightTransferEngine[_Init, _Update]):
    """A transport of tensors as arguments of a call; the same on CPU and GPU, in this process and in workers."""

    init_info_cls = _Init
    update_info_cls = _Update

    def init_transfer_engine(self, init_info: _Init) -> None:
        pass

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import (  # pyright: ignore[reportMissingImports]
            initialize_layerwise_reload,
        )

        initialize_layerwise_reload(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        # the inherited one synchronises an accelerator, which a CPU build has not
        self.receive_weights(self.parse_update_info(update_info))

    def receive_weights(self, update_info: _Update) -> None:
        model: Any = self.model
        model.load_weights(update_info.weights)

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import (  # pyright: ignore[reportMissingImports]
            finalize_layerwise_reload,
        )

        finalize_layerwise_reload(self.model, self.model_config)
        refresh_heads(self.model)

    def shutdown(self) -> None:
        pass


def refresh_heads(model: Any) -> None:
    """Prepare output heads again: with tied embeddings vLLM 0.32 keeps the one it packed from the old weights."""
    from vllm.model_executor.layers.vocab_parallel_embedding import (  # pyright: ignore[reportMissingImports]
        ParallelLMHead,
    )

    for module in model.modules():
        if isinstance(module, ParallelLMHead):
            module.quant_method.process_weights_after_loading(module)


WeightTransferEngineFactory.register_engine(BACKEND, TensorTransfer)


class WorkerExtension:
    """What vLLM's worker class gains in a worker process, which imports this module for it before the model is built,
    and so knows `BACKEND`."""

    device: torch.device  # the worker's own

    def follow_trainer(self) -> None:
        """Leave Ctrl-C and SIGTERM to the trainer, with which a worker ends, and compile no small kernels on a CPU."""
        for one in (signal.SIGINT, signal.SIGTERM):
            signal.signal(one, signal.SIG_IGN)
        if self.device.type == "cpu":
            torch.compiler.set_stance("force_eager")


def has_workers(engine: Any) -> bool:
    """Whether an `LLMEngine` computes in processes of their own."""
    return engine.vllm_config.parallel_config.tensor_parallel_size > 1


@contextmanager
def watch_workers(engine: Any) -> Iterator[None]:
    """Raise EngineDeadError where a worker process has ended, and OutOfMemoryError where its memory is used up."""
    try:
        yield
    except Exception as error:  # an AssertionError too, once vLLM has ended the other workers
        if not has_workers(engine):
            raise
        if engine.engine_core.engine_core.model_executor.is_failed:
            raise EngineDeadError from error
        if "out of memory" in str(error):
            raise torch.OutOfMemoryError(str(error)) from error
        raise


def send_weights(engine: Any, weights: Sequence[tuple[str, Tensor]]) -> None:
    """Exchange all weights of a running `LLMEngine`; what it cached of the old ones is dropped."""
    engine.collective_rpc("start_weight_update")
    for parcel in parcels(weights) if has_workers(engine) else [weights]:
        engine.collective_rpc("update_weights", kwargs={"update_info": {"weights": parcel}})
    engine.collective_rpc("finish_weight_update")
    engine.reset_prefix_cache()


def parcels(weights: Sequence[tuple[str, Tensor]], most: int = PARCEL) -> Iterator[list[tuple[str, Tensor]]]:
    """The weights in host memory, in parcels of at most `most` bytes or one tensor."""
    parcel: list[tuple[str, Tensor]] = []
    size = 0
    for name, tensor in weights:
        if parcel and size + tensor.nbytes > most:
            yield parcel
            parcel, size = [], 0
        parcel.append((name, tensor.cpu()))
        size += tensor.nbytes
    if parcel:
        yield parcel


def swap_adapter(engine: Any, files: Mapping[str, bytes], old: LoRARequest | None, number: int) -> LoRARequest:
    """Exchange adapter `old` for the one in `files`, under id `number`, never used before: vLLM would keep the weights
    of an id it knows. The old one goes first, so that the free slot stays free."""
    with TemporaryDirectory(prefix="ghar-adapter-") as folder:
        for name, data in files.items():
            (Path(folder) / name).write_bytes(data)
        request = LoRARequest(f"policy-{number}", number, folder)
        if old is not None:
            engine.remove_lora(old.lora_int_id)
        if not engine.add_lora(request):
            raise RuntimeError(f"vLLM did not take adapter {number}")
    return request
