"""Tensor parallelism: one vLLM engine on several GPUs, each with a part of every layer (`engine.gpus`)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist

from ghar.device import GIB
from ghar.errors import BadInput

MOST = 8  # GPUs, of what advice names
VOCABULARY = 64  # vLLM fills a vocabulary up to a multiple of it before it is divided
WORKER = GIB  # bytes on each GPU for a worker process: its CUDA context and NCCL's buffers, by reckoning


def check_gpus(gpus: int) -> None:
    """BadInput where this process does not see so many GPUs, or shares them with other processes of its run."""
    if gpus == 1:
        return
    processes = dist.get_world_size() if dist.is_initialized() else int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        raise BadInput(
            f"engine.gpus={gpus} is for a run in one process, and this one has {processes}, each with an engine on its "
            "own GPU: set engine.gpus=1, or start one process (torchrun --nproc-per-node 1)."
        )
    here = torch.cuda.device_count()
    if here < gpus:
        raise BadInput(f"engine.gpus={gpus} is more than there are here ({here}): set engine.gpus={max(1, here)}.")


def check_shape(text: Mapping[str, Any], gpus: int) -> None:
    """BadInput where a model cannot be divided into so many equal parts.

    text: the configuration of the model's text part.
    """
    if gpus > 1 and (undivided := _undivided(text, gpus)):
        fits = [str(n) for n in range(1, MOST + 1) if not _undivided(text, n)]
        raise BadInput(
            f"engine.gpus={gpus} does not divide the model's {undivided}: set engine.gpus to {' or '.join(fits)}."
        )


def _undivided(text: Mapping[str, Any], gpus: int) -> str | None:
    """What of a model cannot be divided into so many equal parts; None where all can."""
    kv_heads = _kv_heads(text)
    if text["num_attention_heads"] % gpus:
        return f"{text['num_attention_heads']} attention heads"
    if kv_heads % gpus and gpus % kv_heads:  # of fewer heads than GPUs each GPU holds a copy of one
        return f"{kv_heads} heads of keys and values"
    if (text.get("intermediate_size") or 0) % gpus:
        return f"layers of {text['intermediate_size']} units"
    if -(-text["vocab_size"] // VOCABULARY) * VOCABULARY % gpus:
        return f"vocabulary of {text['vocab_size']}"
    return None


def cached_heads(text: Mapping[str, Any], gpus: int) -> int:
    """Heads whose keys and values each GPU keeps."""
    return max(1, _kv_heads(text) // gpus)


def _kv_heads(text: Mapping[str, Any]) -> int:
    return text.get("num_key_value_heads") or text["num_attention_heads"]
