"""What a training needs of the machine, asked before anything large is loaded.

Weights, gradients and optimiser by formula, as ZeRO shares them; activations counted (activation_memory.py).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, Literal

import torch

from ghar.config import Config, Zero
from ghar.device import GIB, Device, this_device
from ghar.errors import BadInput
from ghar.llm.demo_model import HEADS
from ghar.llm.models import model_path
from ghar.llm.tensor_parallel import check_gpus, check_shape
from ghar.llm.vllm_build import check_installed, free_memory, step_tokens, workspace
from ghar.trainers.activation_memory import TrainingPass, activations, architecture
from ghar.trainers.pass_sizes import PassSize, Sizes
from ghar.trainers.rl.fast.rows import TREE
from ghar.trainers.rl.settings import has_critic, needs_reference
from ghar.trainers.runs.distributed import world

LEAST_TOKENS = 2048  # no advice to make micro-batches smaller than a long prompt
LORA_RANK = 8  # of the advice to train adapters
LEAST_ROWS = 4  # an engine that works on fewer at once is slow
REPLY = 8  # one token in so many is taken for a reply's
OTHERS, INSTRUCTIONS = 4, 512  # evidence and examples are seldom longer than three records; tokens of what is asked

BOUNDS = Sizes()

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


def check_machine(config: Config, training: bool = True) -> None:
    """BadInput when the engine or its device is missing, or the run does not fit into the memory that is free.

    training: False for an evaluation. A model whose shape cannot be read is left to
    `ghar.llm.models.load_pretrained`, which says why.
    """
    check_gpus(config.engine.shared_by)
    if not training:
        _check_free(config, training)
        return
    if config.engine.kind == "vllm":
        check_installed()
    lora, stage = config.model.finetune == "lora", config.deepspeed.stage
    reinforced = not lora and config.trainer.rl.updates > 0  # SFT alone steps on float32 masters of its own
    if config.model.dtype == "bfloat16" and (stage == 0 or (stage is None and reinforced)):
        raise BadInput(
            f"model.dtype=bfloat16 {'without DeepSpeed' if stage is None else 'under deepspeed=zero0'} would step on "
            "trained weights of 8 bits of precision, which rounds most steps away: choose deepspeed=zero1 (or higher; "
            f"float32 masters), model.dtype=float32 or {'deepspeed=none' if lora else 'model.lora_rank=8'}."
        )
    _check_free(config, training)


def _check_free(config: Config, training: bool) -> None:
    shape = shape_of(config)
    if shape is not None:
        on = this_device()
        free = free_memory(on.kind) // (_here() if on.kind == "cpu" else 1)
        if training:
            phases = estimate(config, shape, processes_of(), on=on)
            peaks = ", ".join(f"{name} {sum(need.values()) / GIB:.1f}" for name, need in phases.items())
            print(f"Memory at the peak, GiB of {on.kind} in each process: {peaks}; {free / GIB:.1f} are free.")
        check_memory(config, shape, processes_of(), free, on, training)


def _here() -> int:
    """Processes of this run on this machine."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if processes_of() > 1 else 1


def processes_of() -> int:
    """Processes of this run, also before they have met."""
    return max(world(), int(os.environ.get("WORLD_SIZE", "1")))


def shape_of(config: Config) -> ModelShape | None:
    """Of the model a run trains, without its weights; None when it cannot be told."""
    from transformers import AutoConfig, Qwen2Config

    model = config.model
    if model.kind == "demo":
        hidden, layers, vocab = (size or 0 for size in (model.hidden, model.layers, model.vocab))
        return shaped(Qwen2Config(
            vocab_size=vocab, hidden_size=hidden, intermediate_size=3 * hidden, num_hidden_layers=layers,
            num_attention_heads=HEADS, num_key_value_heads=HEADS, max_position_embeddings=4096,
            tie_word_embeddings=True,
        ))  # fmt: skip
    try:
        described = AutoConfig.from_pretrained(model_path(config)).get_text_config()
    except (OSError, ValueError):
        return None
    try:
        return shaped(described)
    except (AttributeError, ValueError) as error:
        raise BadInput(
            f"model.path={model.path} is a {described.model_type}, a family whose shape GHAR cannot read ({error}): "
            "choose another model."
        ) from None


def shaped(hf_config: Any) -> ModelShape:
    """The shape that a configuration of transformers describes."""
    text = json.dumps({"model_type": hf_config.model_type, **hf_config.to_dict()}, default=str, sort_keys=True)
    with torch.device("meta"):
        empty = architecture(text)
    head = empty.get_output_embeddings()
    linear = [m for m in empty.modules() if isinstance(m, torch.nn.Linear) and m is not head]
    size = getattr(hf_config, "head_dim", None) or hf_config.hidden_size // hf_config.num_attention_heads
    heads = getattr(hf_config, "num_key_value_heads", None) or hf_config.num_attention_heads
    return ModelShape(
        weights=sum(p.numel() for p in empty.parameters()),
        linear=sum(m.weight.numel() for m in linear),
        ends=sum(m.in_features + m.out_features for m in linear),
        layers=hf_config.num_hidden_layers,
        cached=2 * hf_config.num_hidden_layers * heads * size,
        reach=hf_config.max_position_embeddings,
        architecture=text,
    )


def estimate(
    config: Config,
    shape: ModelShape,
    processes: int,
    training: bool = True,
    on: Device | None = None,
    sizes: Sizes = BOUNDS,
) -> dict[str, Need]:
    """Bytes one process needs on its device, by purpose, in each phase: teacher, sft, rl, evaluation. training: False
    for an evaluation alone; on: the device, the one that is here if None. Where `sizes` leaves it open, prompts are as
    long as each model can expect (`longest`), and passes and batches as large as their keys allow."""
    on = on or this_device()

    def read(of: ModelShape) -> int:
        return longest(config, of) if sizes.length is None else min(sizes.length, longest(config, of))

    own = read(shape)
    phases: dict[str, Need] = {}
    if training:
        teacher = _teacher(config, shape)
        if teacher is not None:
            student = {} if teacher is shape else {"student": shape.weights * bytes_of_number(config)}
            phases["teacher"] = _played(config, teacher, on, read(teacher), sizes) | student
        phases["sft"] = _sft(config, shape, processes, on, own, sizes)
        if config.trainer.rl.updates:
            phases["rl"] = _rl(config, shape, processes, on, own, sizes)
    if config.engine.loads_weights:
        phases["evaluation"] = _played(config, shape, on, own, sizes)
        if training and config.trainer.rl.updates:  # an evaluation alone may have no adapter to fold
            phases["evaluation"]["weights"] += _folded(config, shape)
    return phases


def without_teacher(config: Config) -> Config:
    """The configuration that `estimate` reads of a run whose warm-up is left out."""
    warmup = replace(config.trainer.warmup, teacher="scripted")
    return replace(config, trainer=replace(config.trainer, warmup=warmup))


def _teacher(config: Config, shape: ModelShape) -> ModelShape | None:
    """The shape of a teacher that is loaded here; None for a rule, a server, or one that cannot be read."""
    name = config.trainer.warmup.teacher
    if name == "scripted" or "@http" in name:
        return None
    if name == config.model.path:
        return shape
    return shape_of(replace(config, model=replace(config.model, path=name)))


def _folded(config: Config, shape: ModelShape) -> float:
    """Bytes of the base's weights as they were, while adapters are folded into them."""
    return shape.linear * bytes_of_number(config) if config.model.finetune == "lora" else 0


def _played(config: Config, shape: ModelShape, on: Device, length: int, sizes: Sizes) -> Need:
    """Of a model that answers and learns nothing."""
    return {"weights": shape.weights * bytes_of_number(config), **_engine(config, shape, on, length, sizes)}


def _engine(config: Config, shape: ModelShape, on: Device, length: int, sizes: Sizes) -> Need:
    """Of an engine besides the weights of the trainer's model: vLLM's copy, or the part of it on this GPU, with its
    keys and values, or those of hf and the pass that reads prompts."""
    from ghar.llm.kv_cache import KEPT, read_at_once  # transformers

    engine, item = config.engine, bytes_of_number(config)
    if engine.kind == "vllm":
        tokens = step_tokens(on, length)
        step = workspace(json.loads(shape.architecture), item, tokens, engine.shared_by)
        held = shape.weights * item / engine.shared_by + (engine.kv_cache_gb or 0) * GIB + step
        return {"engine": held if engine.memory is None else engine.memory * _gpu_memory(on)}
    most = min(engine.max_batch, sizes.at_once or engine.max_batch)
    rows = min(most, max(1, read_at_once(on.kind) // length))
    reading = activations(_pass("rollout", config, shape, PassSize(rows, rows * length, 0, False)))
    # a batch's rows stand twice while what they begin alike with is taken over from what is kept
    return {"engine": (2 * most * length + KEPT) * shape.cached * item + reading}


def longest(config: Config, shape: ModelShape) -> int:
    """Tokens of the longest prompts and replies to be expected: what the model may read, and a few times the record
    with the longest reply that env.reply_tokens names."""
    return min(shape.reach, longest_of(config))


def longest_of(config: Config) -> int:
    """`longest` of a model without bounds of its own."""
    reply = max(config.env.budgets.values(), default=0)
    return min(config.model.max_length, OTHERS * config.env.history_tokens + INSTRUCTIONS + reply)


def _sft(config: Config, shape: ModelShape, processes: int, on: Device, length: int, sizes: Sizes) -> Need:
    size = sizes.sft
    if size is None:
        rows = gcd(max(1, config.trainer.warmup.batch // processes), config.trainer.warmup.micro_batch)
        trees = config.deepspeed.stage is None  # DeepSpeed takes pairs apart (sft/trainer.py)
        lines = tree_lines(rows * length, length) if trees else rows
        size = PassSize(lines, rows * length, rows * length // REPLY, trees)
    return _training(config, shape, processes, on, activations(_pass("sft", config, shape, size)), copies=1)


def _rl(config: Config, shape: ModelShape, processes: int, on: Device, length: int, sizes: Sizes) -> Need:
    """Besides training there are rollouts without gradients: adapters folded into a copy, all weights of ZeRO-3."""
    rl, lora = config.trainer.rl, config.model.finetune == "lora"
    # full fine-tuning keeps a copy as its reference
    copies = 2 if not lora and needs_reference(config) else 1
    size = sizes.rl
    if size is None:
        size = PassSize(tree_lines(rl.micro_tokens, length), rl.micro_tokens, rl.micro_tokens // REPLY, True)
    busy = activations(_pass("rl", config, shape, size))
    need = _training(config, shape, processes, on, busy, copies=copies)
    read = 0.0  # of the critic, while all of its weights are gathered beside the policy's
    if has_critic(config):
        own = _training(config, shape, processes, on, 0, copies=0 if lora else 1)
        # plain, it has gradients when the policy has none; ZeRO keeps room for either's
        need["critic"] = own["weights"] + own["optimiser"] + (own["gradients"] if config.deepspeed.stage else 0)
        read = (need["weights"] + own["weights"]) * processes if config.deepspeed.stage == 3 else 0
    play = _folded(config, shape) + (need["weights"] * processes if config.deepspeed.stage == 3 else 0)
    played = _engine(config, shape, on, length, sizes)["engine"]
    if config.engine.kind == "vllm":
        need["engine"] = played
    else:  # it plays while nothing is trained
        play += played
    need["activations"] = max(need["activations"], play - need["gradients"], read - need["gradients"])
    return need


def tree_lines(tokens: int, length: int) -> int:
    """Lines of a pass of so many tokens, when each is the longest tree of rows of `length`: its mask grows with the
    square of the line."""
    return max(1, tokens // (TREE * length))


def room_for_copy(config: Config) -> float:
    """Bytes that the host must have free before RL's checkpoint is copied to be written beside the next update; 0 for a
    model whose shape cannot be read."""
    shape, on = shape_of(config), this_device()
    if shape is None:
        return 0
    need = checkpoint_copy(config, shape, processes_of())
    if on.kind == "cpu":  # the update's own, which is not held between two
        rl = _rl(config, shape, processes_of(), on, longest(config, shape), BOUNDS)
        need += rl["gradients"] + rl["activations"]
    return need * _here()  # all copy at the same time


def checkpoint_copy(config: Config, shape: ModelShape, processes: int) -> float:
    """Bytes of host memory that RL's checkpoint is written from while training goes on: the trained weights, which
    process 0 alone copies, and a process's part of the optimiser's state. None by the plain trainer, which waits."""
    if not config.trainer.rl.updates or config.trainer.method == "plain":
        return 0
    own = 4 if config.deepspeed.stage is None else bytes_of_number(config)
    copied = _trained(config, shape) * own + _moments(config, shape, processes)
    return copied * (2 if has_critic(config) else 1)


def _pass(kind: Literal["sft", "rl", "rollout"], config: Config, shape: ModelShape, size: PassSize) -> TrainingPass:
    model, shared = config.model, config.deepspeed
    return TrainingPass(
        kind, shape.architecture, shape.layers, model.dtype, model.finetune, model.lora_rank or 0, model.critic,
        shared.checkpointing, shared.stage is not None and model.dtype == "bfloat16", size.lines, size.tokens,
        size.replies, size.trees,
    )  # fmt: skip


def _training(config: Config, shape: ModelShape, processes: int, on: Device, busy: float, copies: int) -> Need:
    """Bytes of a training pass. busy: of its activations; copies: how many there are of the weights."""
    model, stage, item = config.model, config.deepspeed.stage, bytes_of_number(config)
    lora = model.finetune == "lora"
    trained = _trained(config, shape)
    own = 4 if stage is None else item  # what is trained without DeepSpeed is float32: adapters, SFT's masters
    held = copies * shape.weights * (item if lora else own) + (trained * own if lora else 0)
    summed = 4 if stage else own  # bytes of a number in which gradients add up
    away = config.deepspeed.offload and on.kind == "cuda"
    return {
        "weights": held / (processes if stage == 3 else 1),
        "optimiser": 0 if away else _moments(config, shape, processes),
        "gradients": trained * summed / (processes if (stage or 0) >= (1 if item == 2 else 2) else 1),
        "activations": max(busy, trained * own if on.kind == "cuda" else 0),  # AdamW steps on all at once there
    }


def _trained(config: Config, shape: ModelShape) -> int:
    """How many weights of a policy are trained."""
    return (config.model.lora_rank or 0) * shape.ends if config.model.finetune == "lora" else shape.weights


def _moments(config: Config, shape: ModelShape, processes: int) -> float:
    """Bytes of a process's part of AdamW's state; DeepSpeed's works on float32 masters."""
    stage = config.deepspeed.stage
    masters = 2 * 4 if stage is None else 12
    return _trained(config, shape) * masters / (processes if (stage or 0) >= 1 else 1)


def bytes_of_number(config: Config) -> int:
    """Bytes of a weight in model.dtype."""
    return 4 if config.model.dtype == "float32" else 2


def worst(
    config: Config, shape: ModelShape, processes: int, training: bool = True, on: Device | None = None
) -> tuple[str, Need]:
    """The phase that needs most, and what it needs."""
    return max(estimate(config, shape, processes, training, on).items(), key=lambda phase: sum(phase[1].values()))


def check_memory(
    config: Config, shape: ModelShape, processes: int, free: int, on: Device, training: bool = True
) -> None:
    """BadInput, with what would fit, when the estimate is above `free` bytes for this process."""
    if not training and not config.engine.loads_weights:
        return
    check_shape(json.loads(shape.architecture), config.engine.shared_by)
    phase, need = worst(config, shape, processes, training, on)
    if sum(need.values()) <= free:
        return
    parts = ", ".join(f"{name} {size / GIB:.1f}" for name, size in need.items() if size)
    raise BadInput(
        f"{'Training' if training else 'Evaluating'} this model of {shape.weights / 1e9:.2g} billion weights needs "
        f"about {sum(need.values()) / GIB:.1f} GiB of {on.kind} memory in each process during {phase} ({parts}), but "
        f"{free / GIB:.1f} are free: {_advice(config, shape, processes, free, on, training)}."
    )


def _advice(config: Config, shape: ModelShape, processes: int, free: int, on: Device, training: bool) -> str:
    """The settings that fit with the fewest changes: savings are made in turn until it fits, those that change no
    result first, and then taken back where it fits without them."""

    def over(tried: Config) -> float:
        phases = estimate(tried, shape, processes, training, on).values()
        return sum(max(0.0, sum(need.values()) - free) for need in phases)

    made: list[Saving] = []
    excess = over(config)
    for saving in savings(config, processes):
        if excess and (less := over(_with(config, [*made, saving]))) < excess:
            made, excess = [*made, saving], less
    cheapest = _with(config, made)
    least = sum(worst(cheapest, shape, processes, training, on)[1].values())
    if excess:
        fits = shape.weights * free / least
        return f"even with all savings it does not fit; take a model of at most about {fits / 1e9:.1g} billion weights"
    for saving in reversed(made):
        without = [other for other in made if other is not saving]
        if not over(_with(config, without)):
            made = without
    last = {saving.key: saving for saving in made}  # of two steps of one key the further one
    need = sum(worst(_with(config, made), shape, processes, training, on)[1].values())
    return f"{' '.join(saving.text for saving in last.values())} would fit ({need / GIB:.1f} GiB)"


def _gpu_memory(on: Device) -> int:
    """Bytes of a GPU; of an 80 GB one where there is none to ask."""
    return on.memory if on.kind == "cuda" else 80 * GIB


def fitted(config: Config, processes: int, on: Device | None = None) -> Config:
    """`config` with the first way of sharing out (ZeRO) that fits, where deepspeed=auto asks for it.

    It is chosen by the size of the GPU and not by what is free on it. Another number of processes may choose another
    way: a run that goes on keeps its own (`ghar.trainers.runs.resume.as_kept`).
    """
    if config.deepspeed.zero != "auto":
        return config
    on, shape = on or this_device(), shape_of(config)
    masters = config.model.finetune == "full" and config.model.dtype == "bfloat16"  # DeepSpeed's, in float32
    first: Zero = "zero1" if masters else "none"
    ways: tuple[Zero, ...] = ("zero2", "zero3", "zero3_offload") if processes > 1 else ("zero2_offload",)
    for zero in (first, *ways):
        chosen = replace(config, deepspeed=replace(config.deepspeed, zero=zero))
        if shape is None:
            return chosen
        own = without_teacher(chosen)  # no way shares out a teacher, and the run may need none
        if sum(worst(own, shape, processes, on=on)[1].values()) <= 0.95 * _gpu_memory(on):
            return chosen
    return replace(config, deepspeed=replace(config.deepspeed, zero=first))  # refused with advice


@dataclass(frozen=True)
class Saving:
    """An override that lowers the need for memory. text: as a command has it; changed: the configuration with it."""

    key: str
    text: str
    changed: Callable[[Config], Config]


def _with(config: Config, made: Sequence[Saving]) -> Config:
    for saving in made:
        config = saving.changed(config)
    return config


def savings(config: Config, processes: int) -> Iterator[Saving]:
    """Overrides that save memory; those that change no result come first, shorter prompts last."""
    model, shared, rl, warmup = config.model, config.deepspeed, config.trainer.rl, config.trainer.warmup

    def saving(section: str, key: str, value: object, text: str = "") -> Saving:
        def changed(now: Config) -> Config:
            return _set(now, f"{section}.{key}".split("."), value)

        name = text.partition("=")[0] or f"{section}.{key}"
        return Saving(name, text or f"{name}={str(value).lower()}", changed)

    if not shared.checkpointing:
        yield saving("deepspeed", "checkpointing", True)
    for size in _halves(warmup.micro_batch, 1):
        if warmup.batch % size == 0:
            yield saving("trainer.warmup", "micro_batch", size)
    for tokens in _halves(rl.micro_tokens, LEAST_TOKENS):
        yield saving("trainer.rl", "micro_tokens", tokens)
    for rows in _halves(config.engine.max_batch, LEAST_ROWS):
        yield saving("engine", "max_batch", rows)
    if processes > 1 and shared.stage != 3 and not (model.finetune == "lora" and has_critic(config)):
        # such a critic reads the base's weights as a whole
        yield saving("deepspeed", "zero", "zero3", "deepspeed=zero3")
    if has_critic(config):
        yield saving("model", "critic", "head")
    if model.finetune == "full":
        yield saving("model", "lora_rank", LORA_RANK)
    if model.dtype == "float32":
        yield saving("model", "dtype", "bfloat16")
    for length in _halves(min(model.max_length, longest_of(config)), LEAST_TOKENS):
        yield saving("model", "max_length", length)


def _halves(number: int, least: int) -> Iterator[int]:
    """Half of a number, half of that, and so on, down to `least`."""
    while (number := number // 2) >= least:
        yield number


def _set(section: Any, path: Sequence[str], value: Any) -> Any:
    """A section of the configuration with another value at `path`."""
    name, *rest = path
    return replace(section, **{name: _set(getattr(section, name), rest, value) if rest else value})
