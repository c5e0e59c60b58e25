"""Whether several GPUs can share one engine; needs neither vLLM nor a GPU."""

from __future__ import annotations

import importlib.util

import pytest
import torch
from transformers import LlamaConfig, Qwen2Config

from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.engines import make_engine
from ghar.llm.tensor_parallel import cached_heads, check_gpus, check_shape

SMALL_QWEN = Qwen2Config(  # Qwen2.5-0.5B
    vocab_size=151_936, hidden_size=896, intermediate_size=4864, num_attention_heads=14, num_key_value_heads=2
).to_dict()  # fmt: skip
SMOLLM2 = LlamaConfig(
    vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_attention_heads=9, num_key_value_heads=3
).to_dict()  # fmt: skip
LLAMA = LlamaConfig(
    vocab_size=128_256, hidden_size=4096, intermediate_size=14_336, num_attention_heads=32, num_key_value_heads=8
).to_dict()  # fmt: skip


def test_more_gpus_than_there_are_is_refused_before_anything_is_loaded(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())  # vLLM is taken to be installed
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(BadInput, match=r"engine\.gpus=2 is more than there are here \(1\): set engine\.gpus=1"):
        make_engine(load(["engine=vllm", "engine.gpus=2"]), None, None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    check_gpus(2)


def test_one_of_several_processes_has_one_gpu_for_its_engine(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 8)
    monkeypatch.setenv("WORLD_SIZE", "4")
    check_gpus(1)
    with pytest.raises(BadInput, match=r"this one has 4, .*set engine\.gpus=1, or start one process \(torchrun"):
        check_gpus(2)


@pytest.mark.parametrize(("text", "gpus", "said"), [
    (SMALL_QWEN, 4, "14 attention heads: set engine.gpus to 1 or 2."),
    (SMOLLM2, 2, "9 attention heads: set engine.gpus to 1 or 3."),
    ({**LLAMA, "num_attention_heads": 24, "num_key_value_heads": 8}, 3, "8 heads of keys and values"),
    ({**LLAMA, "intermediate_size": 14_338}, 4, "layers of 14338 units: set engine.gpus to 1 or 2."),
    ({**LLAMA, "num_attention_heads": 30, "num_key_value_heads": 5, "intermediate_size": 300}, 5, "vocabulary of"),
])  # fmt: skip
def test_a_model_that_cannot_be_divided_is_refused_with_what_can(text, gpus, said):
    with pytest.raises(BadInput) as refused:
        check_shape(text, gpus)
    assert f"engine.gpus={gpus} does not divide the model's" in str(refused.value) and said in str(refused.value)


def test_heads_of_keys_and_values_are_divided_or_copied():
    for gpus, heads in ((1, 8), (2, 4), (8, 1), (16, 1)):
        check_shape(LLAMA, gpus)
        assert cached_heads(LLAMA, gpus) == heads
    assert cached_heads({**LLAMA, "num_key_value_heads": None}, 4) == 8
