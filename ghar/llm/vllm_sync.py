"""New weights for a running vLLM: whole ones through its weight-update API, adapters by exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

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

BACKEND = "ghar_in_process"


@dataclass
class _Init(WeightTransferInitInfo):
    """Nothing to agree on: trainer and engine share a process."""


@dataclass
class _Update(WeightTransferUpdateInfo):
    """Named tensors of a checkpoint, by reference."""

    weights: Sequence[tuple[str, Tensor]]


class InProcess(WeightTransferEngine[_Init, _Update]):
    """A transport for trainer and engine in one process; the same on CPU and GPU."""

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


def register_backend() -> None:
    """Make `BACKEND` known to vLLM, once a process."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, InProcess)


def send_weights(engine: Any, weights: Sequence[tuple[str, Tensor]]) -> None:
    """Exchange all weights of a running `LLMEngine`; what it cached of the old ones is dropped."""
    engine.collective_rpc("start_weight_update")
    engine.collective_rpc("update_weights", kwargs={"update_info": {"weights": weights}})
    engine.collective_rpc("finish_weight_update")
    engine.reset_prefix_cache()


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
