"""What a policy sends to an engine with a copy of its own: whole weights under plain names, or an adapter's files."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import Tensor, uint8

from ghar.llm.canary import WrongWeights


@dataclass(frozen=True)
class WeightUpdate:
    """What a policy sends: named tensors of a plain checkpoint, or the files of a LoRA adapter (name -> bytes)."""

    weights: Sequence[tuple[str, Tensor]] = ()
    adapter: Mapping[str, bytes] = field(default_factory=dict)
    seal: int | None = None  # checksum of all of it, from `sealed`

    def sealed(self) -> WeightUpdate:
        """The same on the CPU, with its checksum: for the way to another process."""
        kept = WeightUpdate([(name, tensor.cpu()) for name, tensor in self.weights], self.adapter)
        return replace(kept, seal=kept.checksum())

    def checksum(self) -> int:
        """CRC-32 of names and bytes; of what is damaged at one place it is another one for certain."""
        total = 0
        for name, tensor in self.weights:
            data: Any = tensor.detach().contiguous().flatten().view(uint8).numpy()  # a buffer, as zlib takes it
            total = zlib.crc32(data, zlib.crc32(name.encode(), total))
        for name, data in sorted(self.adapter.items()):
            total = zlib.crc32(data, zlib.crc32(name.encode(), total))
        return total

    def check(self) -> None:
        """WrongWeights when what arrived is not what was sealed."""
        if self.seal is not None and self.checksum() != self.seal:
            raise WrongWeights(
                "the weights that reached the engine are not those that the trainer sent (their checksums differ): "
                "they were damaged on the way, so the run stops here."
            )


def pack(model: Any, adapters: bool) -> list[WeightUpdate]:
    """What makes an engine answer as `model` does: its weights, and with `adapters` and a peft model its adapter apart.

    Without `adapters` a peft model must have been merged by the caller. Tensors are `model`'s own, not copies.
    """
    from peft import PeftModel

    parcels = [WeightUpdate(list(plain_weights(model)))]
    if adapters and isinstance(model, PeftModel):
        with TemporaryDirectory(prefix="ghar-adapter-") as folder:
            save_adapter(model, Path(folder))
            files = {f.name: f.read_bytes() for f in Path(folder).iterdir() if f.is_file()}
        parcels.append(WeightUpdate(adapter=files))
    return parcels


def plain_weights(model: Any) -> Iterator[tuple[str, Tensor]]:
    """Weights of a causal LM under the names of a plain checkpoint; tied ones come once.

    Of a peft model those of its base: unmerged adapters are left out, merged ones are in it.
    """
    for name, parameter in model.named_parameters():
        if "lora_" not in name:
            yield name.removeprefix("base_model.model.").replace(".base_layer.", "."), parameter.detach()


def save_adapter(model: Any, folder: Path) -> None:
    """The actor's adapter as peft writes it."""
    model.save_pretrained(folder, selected_adapters=["default"], save_embedding_layers=False)
