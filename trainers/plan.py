"""What a run would take, before it starts: calls of the model, tokens, hours, memory and disk of each phase.

Counts come from the system's own cases and a few episodes, of its rule or of a sketch of a model (trainers/dry_run.py);
speeds from some layers of the model at its true width, timed on this machine; memory from trainers/memory.py. Nothing
is trained and no weights are loaded.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import numpy as np
import psutil
import torch

from ghar.config import Config
from ghar.device import GIB, Device, planned_for, this_device
from ghar.envs import system as systems
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.envs.system import WORDS, DemoPretraining, System, Variant
from ghar.errors import BadInput
from ghar.heap import release_memory
from ghar.llm.policy import Policy
from ghar.llm.tensor_parallel import check_gpus, check_shape
from ghar.llm.vllm_build import free_memory
from ghar.trainers.activation_memory import architecture
from ghar.trainers.base import packaged_base
from ghar.trainers.dry_run import DryRun, Encoding, Ids
from ghar.trainers.evaluation.evaluate import table_of
from ghar.trainers.memory import BOUNDS, ModelShape, checkpoint_copy, estimate, processes_of, shape_of, without_teacher
from ghar.trainers.pass_sizes import Sizes, rl_size, row_of, sft_size
from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
from ghar.trainers.rl.trajectory import Row
from ghar.trainers.stages import evaluated_variants, further_stages, needs_warm_up

PROBED, PROBED_VARIANT = 24, 8  # episodes: of what the teacher plays, and of a variant with weights of its own
TIMED = 1024  # tokens of a timed pass
TOKENS_A_WORD = 1.5  # where there is no tokenizer yet
UNCACHED = 256 * 2**20  # bytes of weights that no processor keeps from one token to the next
LIBRARIES = 3 * GIB  # of host memory beside a GPU, besides weights and data


@dataclass(frozen=True)
class EpisodeCounts:
    """Of an episode, on average: calls of the model, tokens of their prompts and replies, and seconds besides.

    steps, rows: passes of one token for a batch of replies, an episode's share of them, and the replies in these
    passes; fresh: the share of the prompts' tokens that an engine reads, the rest being kept from other prompts;
    longest: tokens of the longest prompt of all with the longest reply that it allows, None where it was not counted;
    context: tokens of a call's prompt, with the reply that it goes on from, None where they are prompt / calls;
    texts: prompts and replies of so many `episodes`; at_once: requests that an episode waits for together.
    """

    calls: float
    prompt: float
    reply: float
    seconds: float
    steps: float
    rows: float
    fresh: float = 1.0
    longest: int | None = None
    context: float | None = None
    texts: tuple[Row, ...] = field(default=(), repr=False)
    episodes: int = 0
    at_once: float = 1.0

    @property
    def tokens(self) -> float:
        return self.prompt + self.reply

    @property
    def call(self) -> float:
        """Tokens of a call's whole prompt and its reply."""
        calls = max(self.calls, 1)
        return (self.prompt / calls if self.context is None else self.context) + self.reply / calls


@dataclass(frozen=True)
class Speed:
    """Tokens a second and process: trained on (forward and backward) and read (forward); seconds of a pass of one token
    for a batch, and what every row of it adds."""

    train: float
    read: float
    step: float
    row: float


@dataclass(frozen=True)
class PlanPhase:
    """name; calls of the engine; tokens read, sampled and trained on, of all processes; seconds, None on a device that
    is not here to be timed; bytes a process holds on its device at most."""

    name: str
    calls: float
    read: float
    sampled: float
    trained: float
    seconds: float | None
    memory: float


Plays = float | Sequence[tuple[float, EpisodeCounts]]  # episodes as the probe counted them, or of several kinds


@dataclass(frozen=True)
class Plan:
    """The phases of a run, and what it needs besides: bytes on the host, and on the disk of run_dir.

    host: beside a GPU libraries (of vLLM's worker processes too), weights and the copy that a checkpoint is written
    from; on a CPU all of the process, with prompts as long as the probe's, where a phase's memory is with the longest
    that may be. device: cpu, cuda, or the name of a GPU that is not here; free: bytes of it.
    """

    phases: tuple[PlanPhase, ...]
    host: float
    disk: float
    device: str
    free: int
    processes: int

    @property
    def warms_up(self) -> bool:
        return any(phase.name == "sft" for phase in self.phases)

    @property
    def seconds(self) -> float | None:
        """Of all phases; None where they could not be timed."""
        every = [phase.seconds for phase in self.phases if phase.seconds is not None]
        return sum(every) if len(every) == len(self.phases) else None

    def text(self) -> str:
        """A table for the screen."""
        head = ("phase", "calls", "tokens read", "sampled", "trained", "hours", f"GiB of {self.device}")
        lines: list[tuple[str, ...]] = [head]
        for p in self.phases:
            counts = (_short(n) for n in (p.calls, p.read, p.sampled, p.trained))
            lines.append((p.name, *counts, _hours(p.seconds), f"{p.memory / GIB:.1f}"))
        table = [line[0].ljust(11) + "".join(cell.rjust(13) for cell in line[1:]) for line in lines]
        rest = (
            f"{_hours(self.seconds)} hours in {self.processes} process(es); {self.free / GIB:.1f} GiB of "
            f"{self.device} are free to each; host {self.host / GIB:.1f} GiB a process; disk {self.disk / GIB:.1f} GiB."
        )
        return "\n".join([*table, rest])


def _hours(seconds: float | None) -> str:
    return "?" if seconds is None else f"{seconds / 3600:.2f}"


def make_plan(config: Config, gpus: tuple[int, Device] | None = None) -> Plan:
    """The plan of a training, here or on so many GPUs that are not here, which are not timed.

    BadInput where the model's shape cannot be read, or the system has no agents.
    """
    shape = shape_of(config)
    if shape is None:
        raise BadInput(f"model.path={config.model.path} has no configuration that can be read: correct the path.")
    records = Records(config)
    built = systems.build(records)
    if not built.agents:
        raise BadInput(f"system {built.name} has no agents, so there is nothing to train and to plan.")
    system = table_of(built, records)
    counted, variants = probe(system, config, shape), probe_variants(system, config, shape)
    held = _resident_memory()
    speed = measure(config, shape, counted) if gpus is None else None
    processes, on = (processes_of(), this_device()) if gpus is None else gpus
    asked = config if needs_warm_up(system, config) else without_teacher(config)
    memory, likely = (
        {name: sum(parts.values()) for name, parts in estimate(asked, shape, processes, on=on, sizes=sizes).items()}
        for sizes in (BOUNDS, probed_sizes(system, config, shape, processes, counted, variants))
    )
    phases = tuple(phases_of(system, config, counted, speed, memory, processes, variants))
    device, free = (on.kind, free_memory(on.kind)) if gpus is None else (on.name, on.memory)
    copied = checkpoint_copy(config, shape, processes)
    if on.kind == "cpu" and copied and likely["rl"] + copied <= free:  # else it is written at once, without a copy
        likely["rl"] += copied
    workers = config.engine.shared_by if config.engine.shared_by > 1 else 0
    beside = LIBRARIES * (1 + workers) + shape.weights * _item(config) + copied  # a GPU
    host = beside if on.kind == "cuda" else held + max(likely.values())
    return Plan(phases, host, disk_of(system, config, shape, counted, variants), device, free, processes)


def _resident_memory() -> int:
    """Bytes of this process with the libraries, data and indexes of a training, before any weights."""
    import ghar.trainers.sft.trainer  # noqa: F401  # TRL, which a training imports last

    release_memory()
    return psutil.Process().memory_info().rss


def probed_sizes(
    system: System[Any],
    config: Config,
    shape: ModelShape,
    processes: int,
    counted: EpisodeCounts,
    variants: Mapping[str, EpisodeCounts],
) -> Sizes:
    """Passes and batches as large as the probes make them."""
    from ghar.trainers.sft.packing import can_share

    with torch.device("meta"):
        shares = can_share(architecture(shape.architecture, 2))
    ids, taught = _encoding(config), needs_warm_up(system, config)
    learned = [counted.texts] if taught else []
    for name in further_stages(system, config):
        pairs = _spread(system.training.stages[name](WORDS).train)
        learned.append(tuple(row_of(ids.prompt(prompt), ids.text(reply), ids.weight) for prompt, reply, *_ in pairs))
    passes = [size for rows in learned if (size := sft_size(rows, config, processes, shares))]
    at_once = ceil(config.env.in_flight * max([counted.at_once, *(of.at_once for of in variants.values())]))
    return Sizes(
        longest_played(system, config, counted, variants),
        at_once,
        max(passes, key=lambda size: size.tokens, default=None),
        rl_size(counted.texts, counted.episodes, config, processes, shares),
    )


def longest_played(
    system: System[Any], config: Config, counted: EpisodeCounts, variants: Mapping[str, EpisodeCounts]
) -> int | None:
    """Tokens of the longest prompt and reply that the run plays, as the probes saw them; see `EpisodeCounts`."""
    models = [variant.name for variant in evaluated_variants(system, config) if system.asks_model(variant)]
    as_taught = needs_warm_up(system, config) or not variants.keys() >= set(models)
    probed = [*variants.values(), *([counted] if as_taught else [])]
    lengths = [of.longest for of in probed if of.longest is not None]
    return max(lengths) if lengths and len(lengths) == len(probed) else None


def phases_of(
    system: System[Any],
    config: Config,
    counted: EpisodeCounts,
    speed: Speed | None,
    memory: dict[str, float],
    processes: int,
    variants: Mapping[str, EpisodeCounts] | None = None,
) -> list[PlanPhase]:
    """One after the other, as trainers/recipe.py walks through them. Without a speed there are no seconds.

    variants: episodes of variants that are not played as the teacher plays, by name; the others are `counted`.
    """
    base, warmup, rl = config.trainer.base, config.trainer.warmup, config.trainer.rl
    cases, call = system.cases, counted.tokens / max(counted.calls, 1)
    phases: list[PlanPhase] = []

    def add(name: str, episodes: Plays, trained: float, held: float, passes: float = 0.0, rules: float = 0.0) -> None:
        plays = [(episodes, counted)] if isinstance(episodes, int | float) else episodes
        waited = rules * counted.seconds
        phases.append(_phase(name, plays, trained, passes, waited, speed, processes, held))

    practice = system.training.pretraining
    packaged = isinstance(practice, DemoPretraining) and packaged_base(config, practice) is not None
    if config.model.kind == "demo" and practice is not None and not packaged:
        add("base", 0, base.steps * base.batch * call, memory["sft"])
    samples = min(warmup.samples, len(cases.train))
    rehearsed = 0.0 if system.training.examples else sum(system.training.rehearsal.values())  # episodes a sample
    warms_up = needs_warm_up(system, config)
    if warms_up and system.training.examples is None:
        # between all right at once, each played with its opposite decisions too, and all wrong
        tries = samples * ((1 + warmup.attempts) / 2 + (0.5 if system.training.shaping else 0) + rehearsed)
        rule = warmup.teacher == "scripted"
        add("teacher", 0 if rule else tries, 0, memory.get("teacher", 0), rules=tries if rule else 0)
    if warms_up:
        add("sft", 0, warmup.epochs * samples * (1 + rehearsed) * counted.tokens, memory["sft"])
    evaluated = evaluated_variants(system, config)
    for name in further_stages(system, config):
        examples = system.training.stages[name](WORDS)
        tokens, valid = (_tokens(config, pairs) for pairs in (examples.train, examples.valid))
        epochs = examples.epochs or warmup.epochs
        add(name, 0, epochs * tokens, memory["sft"], passes=4 * epochs * valid)  # every quarter of an epoch
    if rl.updates:
        batch = rl.episodes * counted.tokens
        validated = (rl.updates // rl.eval_every + 1) * min(rl.eval_samples, len(cases.valid))
        before = (2 if rl.kl > 0 or "eq16" in rl.as_printed else 1) * batch  # log-probs, and those of the reference
        episodes = rl.updates * rl.episodes + validated
        add("rl", episodes, rl.updates * rl.epochs * batch, memory["rl"], passes=rl.updates * before)
    models = [variant for variant in evaluated if system.asks_model(variant)]
    tested, fitted = len(cases.test), min(rl.eval_samples, len(cases.valid))  # and a temperature of each, but the base
    plays = [
        (tested + (fitted if variant.who != "base" else 0), (variants or {}).get(variant.name, counted))
        for variant in models
    ]
    rules = sum(variant.who in system.fixed for variant in evaluated) * tested  # what asks no one is fitted, not played
    add("evaluation", plays, 0, memory.get("evaluation", 0), rules=rules)
    return phases


def _phase(
    name: str,
    plays: Sequence[tuple[float, EpisodeCounts]],
    trained: float,
    passes: float,
    waited: float,
    speed: Speed | None,
    processes: int,
    held: float,
) -> PlanPhase:
    """plays: episodes that the model plays; trained: tokens; passes: tokens of forward passes besides; waited: seconds
    of what asks no model; held: memory."""
    read = passes + sum(n * of.prompt * of.fresh for n, of in plays)
    calls, sampled = sum(n * of.calls for n, of in plays), sum(n * of.reply for n, of in plays)
    seconds = None
    if speed is not None:
        played = sum(n * (of.steps * speed.step + of.rows * speed.row + of.seconds) for n, of in plays)
        seconds = (read / speed.read + trained / speed.train + played + waited) / processes
    return PlanPhase(name, calls, read, sampled, trained, seconds, held)


def _tokens(config: Config, pairs: Sequence[Any]) -> float:
    """Of pairs of (prompt, reply, ...), from some of them."""
    if not pairs:
        return 0.0
    ids = _encoding(config)
    counted = sum(len(ids.prompt(prompt)) + len(ids.text(reply)) for prompt, reply, *_ in _spread(pairs))
    return len(pairs) / PROBED * ids.weight * counted


def _spread(pairs: Sequence[Any]) -> list[Any]:
    """`PROBED` of them from the first to the last."""
    return [pairs[i] for i in np.linspace(0, len(pairs) - 1, PROBED).astype(int)] if pairs else []


# ---------------------------------------------------------------- the probe


def probe_variants(system: System[Any], config: Config, shape: ModelShape) -> dict[str, EpisodeCounts]:
    """Count the episodes of evaluated variants with weights of their own (`Training.stages`), which play otherwise."""
    own = [variant for variant in evaluated_variants(system, config) if variant.who in system.training.stages]
    return {variant.name: _count(system, variant, config, shape, PROBED_VARIANT) for variant in own}


def probe(system: System[Any], config: Config, shape: ModelShape) -> EpisodeCounts:
    """Play a few training cases and count: by the system's rule where it teaches, else by a sketch of a model."""
    teacher = system.training.teacher if config.trainer.warmup.teacher == "scripted" else None
    return _count(system, system.teacher_variant(), config, shape, PROBED, teacher)


def _count(
    system: System[Any], variant: Variant, config: Config, shape: ModelShape, most: int, rule: str | None = None
) -> EpisodeCounts:
    """Play at most so many training cases and count. rule: a policy of `System.fixed`; None is a sketch of a model."""
    cases, stage = system.cases.train, stage_of(system, variant, config)
    chosen = [cases[i] for i in np.linspace(0, len(cases) - 1, min(most, len(cases))).astype(int)]
    share = min(1.0, len(chosen) / config.env.in_flight)

    def played(some: Sequence[Any]) -> DryRun:
        run = DryRun(config, shape, _encoding(config), share=share)
        policy: Policy = run.following(system.fixed[rule]()) if rule else run.sketched()
        taken = _timed(lambda: play(stage, some, policy, seed=config.seed, title="Probe"))
        run.seconds = max(0.0, taken - run.seconds)
        return run

    played(chosen[:1])  # what is read or built at the first retrieval
    run = played(chosen)
    calls, read, sampled, fresh, steps, rows, seconds = (
        n / len(chosen) for n in (run.calls, run.prompt, run.reply, run.fresh, *run.passes(), run.seconds)
    )
    steps *= min(1.0, len(chosen) / min(config.engine.max_batch, config.env.in_flight))  # of batches as full as can be
    share_read, context = (fresh / read if read else 1.0), run.context / max(run.calls, 1)
    together = run.widest / min(len(chosen), config.env.in_flight)
    return EpisodeCounts(
        calls, read, sampled, seconds, steps, rows, share_read, run.longest, context,
        texts=tuple(run.texts), episodes=len(chosen), at_once=together,
    )  # fmt: skip


def _encoding(config: Config) -> Encoding:
    """Ids by the model's own tokenizer, its chat template included, where it has one already; else of words."""
    if config.model.kind == "pretrained":
        from transformers import AutoTokenizer

        from ghar.llm.chat_template import freeze
        from ghar.llm.models import model_path
        from ghar.llm.tokens import encode_prompt

        path, tokenizer = model_path(config), None
        with suppress(OSError, ValueError):
            tokenizer = AutoTokenizer.from_pretrained(path)
        if tokenizer is not None:
            freeze(tokenizer, config.model.template_arguments, config.model.system_message, path)
            return Encoding(
                lambda text: tuple(encode_prompt(tokenizer, text)),
                lambda text: tuple(tokenizer.encode(text, add_special_tokens=False)),
            )
    numbers: dict[str, int] = {}

    def words(text: str) -> Ids:
        return tuple(numbers.setdefault(word, len(numbers)) for word in text.split())

    return Encoding(words, words, TOKENS_A_WORD)


def measure(config: Config, shape: ModelShape, counted: EpisodeCounts) -> Speed:
    """Speeds of the whole model, from fewer of its layers at true width."""
    length = int(max(16, min(TIMED, counted.call)))
    rows = max(1, TIMED // length)
    reply = int(max(1, min(length // 2, counted.reply / max(counted.calls, 1))))
    batch = min(config.engine.max_batch, 64)
    train, read = of_all_layers(
        lambda layers: _row_seconds(config, shape, layers, rows, length, reply), 2, min(6, shape.layers), shape
    )
    # one token for each row reads all weights: of few layers they would stay in the processor's cache
    weighty = min(shape.layers, max(2, ceil(UNCACHED / _item(config) / max(1, shape.linear // shape.layers))))
    more = min(shape.layers, 2 * weighty)
    one, all_rows = of_all_layers(lambda some: _step_seconds(config, shape, some, length, batch), weighty, more, shape)
    row = max(0.0, all_rows - one) / max(1, batch - 1)
    return Speed(rows * length / train, rows * length / read, max(0.0, one - row), row)


def of_all_layers(
    seconds: Callable[[int], tuple[float, float]], few: int, more: int, shape: ModelShape
) -> tuple[float, float]:
    """Both seconds of so many layers, drawn out from few and more layers to all of them."""
    if few >= more:
        return seconds(shape.layers)
    each = zip(seconds(few), seconds(more), strict=True)
    first, second = (a + (shape.layers - few) * max(0.0, b - a) / (more - few) for a, b in each)
    return first, second


def _layers_of(config: Config, shape: ModelShape, layers: int) -> Any:
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        return architecture(shape.architecture, layers, config.model.dtype)


def _row_seconds(
    config: Config, shape: ModelShape, layers: int, rows: int, length: int, reply: int
) -> tuple[float, float]:
    """Of a training pass and a reading one over rows of `length` tokens."""
    model = config.model
    how = ActorCriticConfig(
        model.finetune, model.lora_rank or 0, critic=model.critic, detach=True, reference=False,
        checkpointing=config.deepspeed.checkpointing,
    )  # fmt: skip
    ids, logp = np.full(length, 3, np.int64), np.zeros(length, np.float32)
    several = [Row(i, 0, length - reply, ids, logp, (), agent=0, role=0, trainable=True) for i in range(rows)]
    actor = ActorCritic(_layers_of(config, shape, layers), how)

    def train() -> None:
        scores = actor.score(several, entropy_gradient=False)
        (scores.logp.sum() + scores.values.sum()).backward()

    return _best(train), _best(lambda: actor.evaluate(several, rows * length))


def _step_seconds(config: Config, shape: ModelShape, layers: int, length: int, batch: int) -> tuple[float, float]:
    """Of one token behind `length` others, for one row and for a batch of rows, as engine hf samples it."""
    from ghar.llm.kv_cache import BatchCache, PrefixStore, grouped_heads, read_prompts  # transformers

    base = _layers_of(config, shape, layers)
    ids = torch.full((batch, 1), 3, device=base.device)
    with torch.inference_mode(), grouped_heads(base):
        few, _ = read_prompts(base, [(3,) * 3], 0, PrefixStore(0))
        one = few.row(0, 1)

        def sampled(rows: int) -> float:
            cache = BatchCache([length] * rows, base.device)
            wide = [(keys.expand(-1, length, -1), values.expand(-1, length, -1)) for keys, values in one]
            cache.write(range(rows), [(keys[:, :0], values[:, :0]) for keys, values in one], wide)

            def step() -> None:
                cache.mask = torch.cat([cache.mask, cache.mask.new_ones(rows, 1)], dim=1)
                where = ids.new_full((rows, 1), cache.columns)
                how = {"attention_mask": cache.mask, "position_ids": where, "past_key_values": cache.cache}
                base(input_ids=ids[:rows], **how, use_cache=True, logits_to_keep=1)

            return _best(step)

        return sampled(1), sampled(batch)


def _best(work: Callable[[], Any]) -> float:
    """Seconds of the quicker of two, after one that is not counted.

    On a CPU at most what one thread alone works: several wait actively for one that is not running, where others hold
    the machine, and neither clock would tell that from work.
    """
    taken = [_timed(work) for _ in range(3)][1:]
    threads = torch.get_num_threads()
    if threads > 1 and not torch.cuda.is_available():
        torch.set_num_threads(1)
        try:
            taken.append(_timed(work))
        finally:
            torch.set_num_threads(threads)
    return min(taken)


def _timed(work: Callable[[], Any]) -> float:
    """Seconds; on a CPU those that it worked, where others hold it the rest of the time."""
    start, worked = time.perf_counter(), time.process_time()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
        return time.perf_counter() - start
    return min(time.perf_counter() - start, time.process_time() - worked)


# ---------------------------------------------------------------- what is written


def _item(config: Config) -> int:
    return 4 if config.model.dtype == "float32" else 2


def disk_of(
    system: System[Any],
    config: Config,
    shape: ModelShape,
    counted: EpisodeCounts,
    variants: Mapping[str, EpisodeCounts],
) -> float:
    """Bytes of the demo's base, a model after each SFT (with LoRA its adapter), checkpoints on the way, episodes.

    variants: as in `phases_of`. An episode's row has about six characters a token; of one that asks no one none.
    """
    lora, item = config.model.finetune == "lora", _item(config)
    trained = (config.model.lora_rank or 0) * shape.ends if lora else shape.weights
    made = int(needs_warm_up(system, config)) + len(further_stages(system, config))
    models = int(config.model.kind == "demo") * shape.weights * item + made * trained * (4 if lora else item)
    warmup = 2 * trained * (item + 8)
    kept = (config.keep_last + 2) * trained * (item + 8) if config.trainer.rl.updates else 0
    rows = [
        6 * variants.get(variant.name, counted).tokens * bool(variant.who) + 2000
        for variant in evaluated_variants(system, config)
    ]
    return models + max(warmup, kept) + len(system.cases.test) * sum(rows)


def _short(number: float) -> str:
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.1f}{letter}"
    return f"{number:.0f}"


def show(config: Config) -> Plan | None:
    """Print the plan of a run, and the refusal that it would meet (BadInput). Of several processes the first does."""
    from ghar.trainers.memory import check_machine, fitted
    from ghar.trainers.runs.models import use_cores
    from ghar.trainers.scale import print_scale

    if int(os.environ.get("RANK", "0")):
        return None
    systems.check_variants(config)
    print_scale(config)
    if (shape := shape_of(config)) is not None:  # before the cohort is read
        check_shape(json.loads(shape.architecture), config.engine.shared_by)
    if isinstance(config.plan, str):
        return _show_elsewhere(config, config.plan)
    check_gpus(config.engine.shared_by)
    use_cores(config.threads)  # as the run would: its speed is what is measured
    config = fitted(config, processes_of())
    plan = make_plan(config)
    print(plan.text())
    print(f"Host memory free: {psutil.virtual_memory().available / GIB:.1f} GiB.")
    check_machine(config if plan.warms_up else without_teacher(config))
    return plan


def _processes_on(config: Config, gpus: int, on: Device) -> int:
    """Processes of a run on so many GPUs: one on each, or one for all where they share an engine."""
    shared = config.engine.shared_by
    if shared == 1:
        return gpus
    if gpus != shared:
        raise BadInput(
            f"plan names {gpus} GPUs, and engine.gpus={shared} is for one process that uses {shared}: write "
            f"plan={shared}x{on.name}."
        )
    return 1


def _show_elsewhere(config: Config, gpus: str) -> Plan:
    """`show` for GPUs that are not here: memory, disk and counts, and no hours."""
    from ghar.trainers.memory import check_memory, fitted

    count, on = planned_for(gpus)
    processes = _processes_on(config, count, on)
    config = fitted(config, processes, on)
    plan = make_plan(config, (processes, on))
    print(plan.text())
    print(f"deepspeed={config.deepspeed.zero}. Hours are not known: {on.name} is not here to be timed.")
    shape = shape_of(config)
    assert shape is not None  # `make_plan`
    check_memory(config if plan.warms_up else without_teacher(config), shape, processes, on.memory, on)
    return plan
