"""The device of a process: the one it runs on, or a GPU that a run is planned for and that need not be here."""

from __future__ import annotations

import difflib
import os
import re
from dataclasses import dataclass
from typing import Literal

from ghar.errors import BadInput

GIB = 1 << 30
# GiB that CUDA reports as free of an empty one, by the makers' sizes less what error correction and the driver keep
GPUS = {
    "t4": 14.5, "v100": 31.5, "a10": 22.0, "l4": 22.0, "rtx4090": 23.5, "a40": 44.0, "l40s": 44.0, "a100-40gb": 39.0,
    "a100-80gb": 79.0, "a100": 79.0, "h100": 79.0, "h200": 139.0, "b200": 178.0,
}  # fmt: skip
KEPT = 0.03  # of a size in GB, by error correction and the driver
LARGE = 70 * GIB


@dataclass(frozen=True)
class Device:
    """kind; memory: bytes of all of it; name: of the GPU, where it is one."""

    kind: Literal["cpu", "cuda"]
    memory: int
    name: str = ""

    @property
    def reads_far(self) -> bool:
        """Whether vLLM, used offline, reads 16,384 tokens in a step on it and not 8,192 (its own rule)."""
        return self.kind == "cuda" and self.memory >= LARGE and "a100" not in self.name.lower()


def this_device() -> Device:
    """The GPU of this process; where there is none, the processor with the machine's memory."""
    import torch

    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        return Device("cuda", properties.total_memory, properties.name)
    import psutil

    return Device("cpu", psutil.virtual_memory().total)


def name_accelerator() -> None:
    """Name DeepSpeed's accelerator where nothing else does, before a library looks at an installed DeepSpeed: it would
    guess, and warn on the screen of a machine without a GPU."""
    import torch

    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")


def planned_for(text: str) -> tuple[int, Device]:
    """Processes and the GPU of each, from "8xh100", "h100" or "4x48gb".

    Raises BadInput, with the nearest name, for another text.
    """
    match = re.fullmatch(r"(?:([1-9]\d*)x)?([a-z0-9-]+)", text.lower())
    name = match[2] if match else text
    size = re.fullmatch(r"([1-9]\d*)gb", name)
    if match is None or (size is None and name not in GPUS):
        near = difflib.get_close_matches(name, GPUS, 1)
        raise BadInput(
            f"plan={text} names no GPU{f' (did you mean {near[0]}?)' if near else ''}: write true for this machine, or "
            f"processes and a GPU, as in 8xh100 or 4x48gb. Known: {', '.join(GPUS)}."
        )
    memory = float(size[1]) * 1e9 * (1 - KEPT) if size else GPUS[name] * GIB
    return int(match[1] or 1), Device("cuda", int(memory), name)
