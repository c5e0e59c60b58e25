"""What a training needs of the machine, asked before anything large is loaded.

The memory is an estimate: weights, gradients, optimiser and activations of one micro-batch, as ZeRO shares them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch

from ghar.config import Config
from ghar.errors import BadInput
from ghar.llm.vllm_build import GIB, check_installed, free_memory
from trainers.rl.head import CHUNK, FROZEN_CHUNK
from trainers.runs.distributed import world

LEAST_TOKENS = 2048  # no advice to make micro-batches smaller than a long prompt
# bytes of activations a layer keeps per token and unit of width, in 16 bits: Korthikanti et al. 2022, "Reducing
# Activation Recomputation in Large Transformer Models", Table 2, without the attention matrix, which is never stored
KEPT, KEPT_RECOMPUTED = 34, 2


@dataclass(frozen=True)
class Shape:
    """Of a language model: weights in all, sum of inputs and outputs over its linear layers, layers, width, words."""

    weights: int
    ends: int
    layers: int
    hidden: int
    vocab: int


def check_machine(config: Config) -> None:
    """BadInput when the engine or its device is missing, or the training does not fit into the memory that is free.

    A model whose shape cannot be read is left to `trainers.runs.models.load_pretrained`, which says why.
    """
    if config.engine.kind == "vllm":
        check_installed(config.engine.device)
    shape = shape_of(config)
    if shape is not None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if world() > 1 else 1
        check_memory(config, shape, world(), free_memory(device) // (here if device == "cpu" else 1), device)


def shape_of(config: Config) -> Shape | None:
    """Of the model a run trains, without its weights; None when it cannot be told."""
    from transformers import AutoConfig, AutoModelForCausalLM, Qwen2Config

    model = config.model
    if model.kind == "demo":
        hidden, layers, heads, vocab = (size or 0 for size in (model.hidden, model.layers, model.heads, model.vocab))
        found: Any = Qwen2Config(
            vocab_size=vocab, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=heads, tie_word_embeddings=True,
        )  # fmt: skip
    else:
        assert model.path is not None  # ghar.configure asks for it
        try:
            found = AutoConfig.from_pretrained(model.path)
        except (OSError, ValueError):
            return None
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(found)
    linear = [m for m in empty.modules() if isinstance(m, torch.nn.Linear) and m is not empty.get_output_embeddings()]
    ends = sum(m.in_features + m.out_features for m in linear)
    weights = sum(p.numel() for p in empty.parameters())
    return Shape(weights, ends, found.num_hidden_layers, found.hidden_size, found.vocab_size)


def estimate(config: Config, shape: Shape, processes: int) -> dict[str, float]:
    """Bytes one process needs on its device, by purpose."""
    model, shared = config.model, config.deepspeed
    stage = shared.stage or 0
    item = 4 if model.dtype == "float32" else 2
    lora = model.finetune == "lora"
    adapters = model.lora_rank * shape.ends * (2 if model.critic == "adapter" else 1) if lora else 0
    trained = adapters or shape.weights
    copies = 1 if lora or config.trainer.rl.kl == 0 else 2  # full fine-tuning keeps a copy as its reference
    moments = 2 * item if shared.stage is None else 12  # DeepSpeed's work on float32 masters
    away = shared.offload and torch.cuda.is_available()
    tokens, width = config.trainer.rl.micro_tokens, shape.hidden * item / 2
    full = shape.layers * KEPT
    kept = shape.layers * KEPT_RECOMPUTED + KEPT if shared.checkpointing else full
    positions = min(FROZEN_CHUNK if lora else CHUNK, tokens)
    passes = tokens * width * kept + 4 * positions * shape.vocab * 4  # logits and three like them
    gradients = trained * item / (processes if stage >= 2 else 1)
    # rollouts have no gradients, but fold adapters into a second copy of the weights, and ZeRO-3 gathers all of them
    held = (copies * shape.weights + adapters) * item
    busy = max(gradients + passes, (shape.weights * item if lora else 0) + (held if stage == 3 else 0))
    engine = shape.weights * item + (config.engine.kv_cache_gb or 0) * GIB if config.engine.kind == "vllm" else 0
    return {
        "weights": held / (processes if stage == 3 else 1),
        "optimiser": 0 if away else trained * moments / (processes if stage >= 1 else 1),
        "gradients and activations": busy,
        "engine": engine,
    }


def check_memory(config: Config, shape: Shape, processes: int, free: int, device: str) -> None:
    """BadInput, with what would fit, when the estimate is above `free` bytes for this process."""
    need = estimate(config, shape, processes)
    if sum(need.values()) <= free:
        return
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in need.items() if size)
    raise BadInput(
        f"Training this model of {shape.weights / 1e9:.2g} billion weights needs about {sum(need.values()) / GIB:.1f} "
        f"GiB of {device} memory in each process ({parts}), but {free / GIB:.1f} are free: "
        f"{_advice(config, shape, processes, free)}."
    )


def _advice(config: Config, shape: Shape, processes: int, free: int) -> str:
    """The first settings that fit, saving more and more."""
    for change, cheaper in _savings(config, processes):
        need = sum(estimate(cheaper, shape, processes).values())
        if need <= free:
            return f"{change} would fit ({need / GIB:.1f} GiB)"
        config = cheaper
    least = estimate(config, shape, processes)
    fits = shape.weights * free / sum(least.values())
    return f"even with all savings it does not fit; take a model of at most about {fits / 1e9:.1g} billion weights"


def _savings(config: Config, processes: int) -> Iterator[tuple[str, Config]]:
    """Ever cheaper configurations, each with the overrides that lead to it."""
    said: list[str] = []

    def cheaper(text: str) -> tuple[str, Config]:
        said.append(text)
        return " ".join(said), config

    if not config.deepspeed.checkpointing:
        config = replace(config, deepspeed=replace(config.deepspeed, checkpointing=True))
        yield cheaper("deepspeed.checkpointing=true")
    if config.trainer.rl.micro_tokens > LEAST_TOKENS:
        rl = replace(config.trainer.rl, micro_tokens=LEAST_TOKENS)
        config = replace(config, trainer=replace(config.trainer, rl=rl))
        yield cheaper(f"trainer.rl.micro_tokens={LEAST_TOKENS}")
    if config.model.finetune == "full":
        config = replace(config, model=replace(config.model, finetune="lora"))
        yield cheaper("model.finetune=lora")
    if processes > 1 and config.deepspeed.stage != 3:
        config = replace(config, deepspeed=replace(config.deepspeed, stage=3))
        yield cheaper("deepspeed=zero3")
    if config.model.dtype == "float32":
        config = replace(config, model=replace(config.model, dtype="bfloat16"))
        yield cheaper("model.dtype=bfloat16")
