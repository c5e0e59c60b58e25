"""What a training needs of the machine, asked before anything large is loaded.

Weights, gradients and optimiser by formula, as ZeRO shares them; activations counted (activation_memory.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Literal

import torch

from ghar.config import Config
from ghar.errors import BadInput
from ghar.llm.kv_cache import KEPT, read_at_once
from ghar.llm.models import model_path
from ghar.llm.vllm_build import GIB, check_installed, free_memory
from ghar.trainers.activation_memory import TrainingPass, activations, architecture
from ghar.trainers.rl.settings import has_critic
from ghar.trainers.runs.distributed import world

LEAST_TOKENS = 2048  # no advice to make micro-batches smaller than a long prompt
REPLY = 8  # one token in so many is taken for a reply's
OTHERS, INSTRUCTIONS = 4, 512  # evidence and examples are seldom longer than three records; tokens of what is asked

Need = dict[str, float]  # bytes by purpose


@dataclass(frozen=True)
class ModelShape:
    """Of a language model. weights: all of them; linear, ends: of its layers' linear maps, all weights and the sum of
    inputs and outputs; cached: numbers that one token leaves as keys and values; reach: tokens it can read;
    architecture: its configuration in transformers, as JSON."""

    weights: int
    linear: int
    ends: int
    layers: int
    cached: int
    reach: int
    architecture: str


def check_machine(config: Config) -> None:
    """BadInput when the engine or its device is missing, or the training does not fit into the memory that is free.

    A model whose shape cannot be read is left to `ghar.trainers.runs.models.load_pretrained`, which says why.
    """
    if config.engine.kind == "vllm":
        check_installed(config.engine.device)
    lora, stage = config.model.finetune == "lora", config.deepspeed.stage
    if config.model.dtype == "bfloat16" and (stage == 0 or (stage is None and not lora)):
        raise BadInput(
            f"model.dtype=bfloat16 {'without DeepSpeed' if stage is None else 'under deepspeed=zero0'} would step on "
            "trained weights of 8 bits of precision, which rounds most steps away: choose deepspeed=zero1 (or higher; "
            f"float32 masters), model.dtype=float32 or {'deepspeed=none' if lora else 'model.finetune=lora'}."
        )
    shape = shape_of(config)
    if shape is not None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        here = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if world() > 1 else 1
        free = free_memory(device) // (here if device == "cpu" else 1)
        phases = estimate(config, shape, world())
        said = ", ".join(f"{name} {sum(need.values()) / GIB:.1f}" for name, need in phases.items())
        print(f"Memory at the peak, GiB of {device} in each process: {said}; {free / GIB:.1f} are free.")
        check_memory(config, shape, world(), free, device)


def shape_of(config: Config) -> ModelShape | None:
    """Of the model a run trains, without its weights; None when it cannot be told."""
    from transformers import AutoConfig, Qwen2Config

    model = config.model
    if model.kind == "demo":
        hidden, layers, heads, vocab = (size or 0 for size in (model.hidden, model.layers, model.heads, model.vocab))
        return shaped(Qwen2Config(
            vocab_size=vocab, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
            num_attention_heads=heads, num_key_value_heads=heads, max_position_embeddings=4096,
            tie_word_embeddings=True,
        ))  # fmt: skip
    try:
        return shaped(AutoConfig.from_pretrained(model_path(config)))
    except (OSError, ValueError):
        return None


def shaped(found: Any) -> ModelShape:
    """The shape that a configuration of transformers describes."""
    text = json.dumps({"model_type": found.model_type, **found.to_dict()}, default=str, sort_keys=True)
    with torch.device("meta"):
        empty = architecture(text)
    head = empty.get_output_embeddings()
    linear = [m for m in empty.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    size = getattr(found, "head_dim", None) or found.hidden_size // found.num_attention_heads
    return ModelShape(
        weights=sum(p.numel() for p in empty.parameters()),
        linear=sum(m.weight.numel() for m in linear),
        ends=sum(m.in_features + m.out_features for m in linear),
        layers=found.num_hidden_layers,
        cached=2 * found.num_hidden_layers * (found.num_key_value_heads or found.num_attention_heads) * size,
        reach=found.max_position_embeddings,
        architecture=text,
    )


def estimate(config: Config, shape: ModelShape, processes: int) -> dict[str, Need]:
    """Bytes one process needs on its device, by purpose, in each phase: sft, rl."""
    phases = {"sft": _sft(config, shape, processes)}
    if config.trainer.rl.updates:
        phases["rl"] = _rl(config, shape, processes)
    return phases


def longest(config: Config, shape: ModelShape) -> int:
    """Tokens of the longest prompts and replies to be expected: what the model may read, and a few times the record."""
    return min(config.model.max_length, shape.reach, OTHERS * config.env.history_tokens + INSTRUCTIONS)


def _sft(config: Config, shape: ModelShape, processes: int) -> Need:
    warmup = config.trainer.warmup
    rows = gcd(max(1, warmup.batch // processes), warmup.micro_batch)
    busy = activations(_pass("sft", config, shape, rows, rows * longest(config, shape)))
    return _training(config, shape, processes, busy, adapters=1, copies=1)


def _rl(config: Config, shape: ModelShape, processes: int) -> Need:
    """Besides training there are rollouts without gradients: adapters folded into a copy, all weights of ZeRO-3."""
    model, rl, engine = config.model, config.trainer.rl, config.engine
    lora, item = model.finetune == "lora", _item(config)
    # full fine-tuning keeps a copy as its reference
    copies = 2 if not lora and (rl.kl > 0 or rl.ratio == "reference") else 1
    busy = activations(_pass("rl", config, shape, 1, rl.micro_tokens))
    need = _training(config, shape, processes, busy, adapters=1, copies=copies)
    if has_critic(config):  # weights and moments, in every process; it has gradients when the policy has none
        need["critic"] = 3 * (4 * model.lora_rank * shape.ends if lora else item * shape.weights)
    play = (shape.linear * item if lora else 0) + (need["weights"] * processes if config.deepspeed.stage == 3 else 0)
    if engine.kind == "vllm":
        held = shape.weights * item + (engine.kv_cache_gb or 0) * GIB
        need["engine"] = held if engine.memory is None else engine.memory * device_memory()
    else:
        length = longest(config, shape)
        play += (engine.max_batch * length + KEPT) * shape.cached * item
        rows = min(engine.max_batch, max(1, read_at_once("cuda" if torch.cuda.is_available() else "cpu") // length))
        play += activations(_pass("rollout", config, shape, rows, rows * length))
    need["activations"] = max(need["activations"], play - need["gradients"])
    return need


def _pass(
    kind: Literal["sft", "rl", "rollout"], config: Config, shape: ModelShape, rows: int, tokens: int
) -> TrainingPass:
    model, shared = config.model, config.deepspeed
    return TrainingPass(
        kind, shape.architecture, shape.layers, model.dtype, model.finetune, model.lora_rank, model.critic,
        shared.checkpointing, shared.stage is not None and model.dtype == "bfloat16", rows, tokens, tokens // REPLY,
    )  # fmt: skip


def _training(config: Config, shape: ModelShape, processes: int, busy: float, adapters: int, copies: int) -> Need:
    """Bytes of a training pass. busy: of its activations; adapters, copies: how many there are of either."""
    model, stage, item = config.model, config.deepspeed.stage, _item(config)
    lora = model.finetune == "lora"
    trained = adapters * model.lora_rank * shape.ends if lora else shape.weights
    own = 4 if lora and stage is None else item  # peft keeps adapters in float32, DeepSpeed in the model's dtype
    held = copies * shape.weights * item + (trained * own if lora else 0)
    masters = 2 * own if stage is None else 12  # AdamW's moments; DeepSpeed's work on float32 masters
    summed = 4 if stage else own  # bytes of a number in which gradients add up
    away = config.deepspeed.offload and torch.cuda.is_available()
    moments = trained * masters / (processes if (stage or 0) >= 1 else 1)
    return {
        "weights": held / (processes if stage == 3 else 1),
        "optimiser": 0 if away else moments,
        "gradients": trained * summed / (processes if (stage or 0) >= (1 if item == 2 else 2) else 1),
        "activations": max(busy, trained * own if torch.cuda.is_available() else 0),  # AdamW steps on all at once there
    }


def _item(config: Config) -> int:
    return 4 if config.model.dtype == "float32" else 2


def worst(config: Config, shape: ModelShape, processes: int) -> tuple[str, Need]:
    """The phase that needs most, and what it needs."""
    return max(estimate(config, shape, processes).items(), key=lambda phase: sum(phase[1].values()))


def check_memory(config: Config, shape: ModelShape, processes: int, free: int, device: str) -> None:
    """BadInput, with what would fit, when the estimate is above `free` bytes for this process."""
    phase, need = worst(config, shape, processes)
    if sum(need.values()) <= free:
        return
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in need.items() if size)
    raise BadInput(
        f"Training this model of {shape.weights / 1e9:.2g} billion weights needs about {sum(need.values()) / GIB:.1f} "
        f"GiB of {device} memory in each process during {phase} ({parts}), but {free / GIB:.1f} are free: "
        f"{_advice(config, shape, processes, free)}."
    )


def _advice(config: Config, shape: ModelShape, processes: int, free: int) -> str:
    """The first settings that fit, saving more and more."""
    for change, cheaper in _savings(config, processes):
        need = sum(worst(cheaper, shape, processes)[1].values())
        if need <= free:
            return f"{change} would fit ({need / GIB:.1f} GiB)"
        config = cheaper
    least = worst(config, shape, processes)[1]
    fits = shape.weights * free / sum(least.values())
    return f"even with all savings it does not fit; take a model of at most about {fits / 1e9:.1g} billion weights"


def device_memory() -> int:
    """Bytes of a GPU, or of all processes' share of this machine; of an 80 GB one where there is no GPU to ask."""
    return torch.cuda.mem_get_info()[1] if torch.cuda.is_available() else 80 * GIB


def fitted(config: Config, processes: int) -> Config:
    """`config` with the first way of sharing out (ZeRO) that fits, where deepspeed.auto asks for it.

    It is chosen by the size of the GPU and not by what is free on it, so that a resumed run chooses the same.
    """
    if not config.deepspeed.auto:
        return config
    shape = shape_of(config)
    masters = config.model.finetune == "full" and config.model.dtype == "bfloat16"  # DeepSpeed's, in float32
    ways: list[tuple[int | None, bool]] = [(1 if masters else None, False), (2, False), (3, False), (3, True)]
    ways = ways if processes > 1 else [ways[0], (2, True)]
    for stage, offload in ways:
        choice = replace(config.deepspeed, stage=stage, offload=offload, auto=False)
        chosen = replace(config, deepspeed=choice)
        if shape is None or sum(worst(chosen, shape, processes)[1].values()) <= 0.95 * device_memory():
            return chosen
    return replace(config, deepspeed=replace(config.deepspeed, stage=ways[0][0], auto=False))  # refused with advice


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
    if has_critic(config):
        config = replace(config, model=replace(config.model, critic="head"))
        yield cheaper("model.critic=head")
    if config.model.finetune == "full":
        config = replace(config, model=replace(config.model, finetune="lora"))
        yield cheaper("model.finetune=lora")
    if processes > 1 and config.deepspeed.stage != 3:
        config = replace(config, deepspeed=replace(config.deepspeed, stage=3))
        yield cheaper("deepspeed=zero3")
    if config.model.dtype == "float32":
        config = replace(config, model=replace(config.model, dtype="bfloat16"))
        yield cheaper("model.dtype=bfloat16")
