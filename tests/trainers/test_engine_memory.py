"""What engine hf holds while it samples is what the memory estimate counts."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from ghar.device import GIB, Device
from ghar.launch.entry import load
from ghar.llm.engine import Request
from ghar.llm.hf import HFEngine
from ghar.llm.models import untrained
from ghar.trainers.activation_memory import LiveBytes
from ghar.trainers.memory import estimate, shaped
from ghar.trainers.pass_sizes import Sizes

ROWS, WORDS, MORE = 8, 150, 10
SHAPE = LlamaConfig(
    vocab_size=700, hidden_size=64, intermediate_size=128, num_hidden_layers=6, num_attention_heads=4,
    num_key_value_heads=4, max_position_embeddings=2048,
)  # fmt: skip


@pytest.mark.slow
def test_a_turn_that_goes_on_from_kept_prompts_holds_what_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a batch's records was read before; the second turn takes them over and reads a little more."""
    config = load([f"data.cache={tmp_path}", f"engine.max_batch={ROWS}", "model.dtype=float32"])
    words = [f"w{i}" for i in range(600)]
    _, tokenizer = untrained(config, [" ".join(words)], (), 0)
    torch.manual_seed(0)
    engine = HFEngine(LlamaForCausalLM(SHAPE).eval(), tokenizer, ROWS)
    records = [" ".join(words[(row + 7 * i) % 600] for i in range(WORDS)) for row in range(ROWS)]
    turns = [records, [record + " " + " ".join(words[:MORE]) for record in records]]
    with LiveBytes() as live:
        for prompts in turns:
            replies = engine.generate([Request(prompt, max_tokens=2, seed=1) for prompt in prompts])
    length = max(len(reply.prompt_ids) + len(reply.token_ids) for reply in replies)
    kept = engine._store.tokens
    assert 500 < length < 1024 and kept >= ROWS * length * 0.9
    monkeypatch.setattr("ghar.llm.kv_cache.KEPT", kept)
    counted = estimate(config, shaped(SHAPE), 1, training=False, on=Device("cpu", GIB), sizes=Sizes(length))
    assert 0.85 * counted["evaluation"]["engine"] < live.peak < 1.05 * counted["evaluation"]["engine"]
