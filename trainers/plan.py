"""What a run would take, before it starts: calls of the model, tokens, hours, memory and disk of each phase.

Counts come from the system's own cases and a few episodes (trainers/probe.py), tokens of training passes from how their
rows are packed (trainers/pass_sizes.py), speeds from some layers of the model that are timed on this machine
(trainers/speed.py), memory from trainers/memory.py. Nothing is trained and no weights are loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

import numpy as np
import psutil
import torch

from ghar.config import Config
from ghar.device import GIB, Device, planned_for, this_device
from ghar.envs import system as systems
from ghar.envs.records import Records
from ghar.envs.system import WORDS, DemoPretraining, Reader, System, Variant
from ghar.errors import BadInput
from ghar.heap import release_memory
from ghar.llm.tensor_parallel import check_gpus, check_shape
from ghar.llm.vllm_build import free_memory
from ghar.trainers.activation_memory import architecture
from ghar.trainers.base import packaged_base
from ghar.trainers.evaluation.evaluate import table_of
from ghar.trainers.memory import (
    BOUNDS,
    ModelShape,
    bytes_of_number,
    checkpoint_copy,
    estimate,
    processes_of,
    shape_of,
    without_teacher,
)
from ghar.trainers.pass_sizes import Packing, Sizes, rl_packing, row_of, sft_packing
from ghar.trainers.probe import PROBED, EpisodeCounts, encoding_of, probe, probe_variants, reader_without_weights
from ghar.trainers.rl.settings import needs_reference, trained_share
from ghar.trainers.speed import Speed, measure
from ghar.trainers.stages import evaluated_variants, further_stages, needs_warm_up

LIBRARIES = 3 * GIB  # of host memory beside a GPU, besides weights and data


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


Packings = tuple[Packing | None, Packing | None]  # of SFT and of RL
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

    BadInput where the model's shape cannot be read, or the system has no agents that learn.
    """
    shape = shape_of(config)
    if shape is None:
        raise BadInput(f"model.path={config.model.path} has no configuration that can be read: correct the path.")
    records = Records(config)
    built = systems.build(records)
    if not built.is_trainable:
        raise BadInput(f"system {built.name} has no agents that learn, so there is nothing to train and to plan.")
    reader = reader_without_weights(config, shape)
    system = table_of(built, records).read_by(reader)
    counted, variants = probe(system, config, shape), probe_variants(system, config, shape)
    held = _resident_memory()
    speed = measure(config, shape, counted) if gpus is None else None
    processes, on = (processes_of(), this_device()) if gpus is None else gpus
    packed = sft, rl = packings(config, shape, processes, counted)
    counted = replace(counted, sft=sft and sft.episode, rl=rl and rl.episode, before=rl and rl.before)
    asked = config if needs_warm_up(system, config) else without_teacher(config)
    memory, likely = (
        {name: sum(parts.values()) for name, parts in estimate(asked, shape, processes, on=on, sizes=sizes).items()}
        for sizes in (BOUNDS, probed_sizes(system, config, shape, processes, counted, variants, packed, reader))
    )
    phases = tuple(phases_of(system, config, counted, speed, memory, processes, variants, reader))
    device, free = (on.kind, free_memory(on.kind)) if gpus is None else (on.name, on.memory)
    copied = checkpoint_copy(config, shape, processes)
    if on.kind == "cpu" and copied and likely["rl"] + copied <= free:  # else it is written at once, without a copy
        likely["rl"] += copied
    workers = config.engine.shared_by if config.engine.shared_by > 1 else 0
    beside = LIBRARIES * (1 + workers) + shape.weights * bytes_of_number(config) + copied  # a GPU
    host = beside if on.kind == "cuda" else held + max(likely.values())
    return Plan(phases, host, disk_of(system, config, shape, counted, variants), device, free, processes)


def _resident_memory() -> int:
    """Bytes of this process with the libraries, data and indexes of a training, before any weights."""
    import ghar.trainers.sft.trainer  # noqa: F401  # TRL, which a training imports last

    release_memory()
    return psutil.Process().memory_info().rss


def packings(config: Config, shape: ModelShape, processes: int, counted: EpisodeCounts) -> Packings:
    """How SFT and RL pack the probe's rows; None without rows."""
    shares, texts = _reads_trees(shape), counted.texts
    return sft_packing(texts, config, processes, shares), rl_packing(texts, config, processes, shares)


def _reads_trees(shape: ModelShape) -> bool:
    from ghar.trainers.sft.packing import can_share

    with torch.device("meta"):
        return can_share(architecture(shape.architecture, 2))


def probed_sizes(
    system: System[Any],
    config: Config,
    shape: ModelShape,
    processes: int,
    counted: EpisodeCounts,
    variants: Mapping[str, EpisodeCounts],
    packed: Packings,
    reader: Reader = WORDS,
) -> Sizes:
    """Passes and batches as large as the probes make them. packed: of `counted`, see `packings`; reader: who reads
    what is learned, and how much of it at a time."""
    ids, (sft, rl) = encoding_of(config), packed
    learned = [sft] if needs_warm_up(system, config) else []
    for name in further_stages(system, config):
        pairs = _spread(system.training.stages[name](reader).train)
        rows = [(row_of(ids.prompt(prompt), ids.text(reply), ids.weight),) for prompt, reply, *_ in pairs]
        learned.append(sft_packing(rows, config, processes, _reads_trees(shape)))
    passes = [packing.largest for packing in learned if packing is not None]
    return Sizes(
        longest_played(system, config, counted, variants),
        ceil(config.env.in_flight * max([counted.at_once, *(of.at_once for of in variants.values())])),
        None if makes_base(config, system) else max(passes, key=lambda size: size.tokens, default=None),
        None if rl is None else rl.largest,
    )


def makes_base(config: Config, system: System[Any]) -> bool:
    """Whether the run trains a base model, which does not come with the package."""
    practice = system.training.pretraining
    packaged = isinstance(practice, DemoPretraining) and packaged_base(config, practice) is not None
    return config.model.kind == "demo" and practice is not None and not packaged


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
    reader: Reader = WORDS,
) -> list[PlanPhase]:
    """One after the other, as trainers/recipe.py walks through them. Without a speed there are no seconds.

    variants: episodes of variants that are not played as the teacher plays, by name; the others are `counted`.
    reader: who reads what stages learn.
    """
    base, warmup, rl = config.trainer.base, config.trainer.warmup, config.trainer.rl
    cases, call = system.cases, counted.tokens / max(counted.calls, 1)
    phases: list[PlanPhase] = []

    def add(name: str, episodes: Plays, trained: float, held: float, passes: float = 0.0, rules: float = 0.0) -> None:
        plays = [(episodes, counted)] if isinstance(episodes, int | float) else episodes
        waited = rules * counted.seconds
        phases.append(_phase(name, plays, trained, passes, waited, speed, processes, held))

    def as_played(variant: Variant) -> EpisodeCounts:
        return replace((variants or {}).get(variant.name, counted), scored=system.corpus_prompts(variant))

    if makes_base(config, system):
        add("base", 0, base.steps * base.batch * call, memory["sft"])
    samples = min(warmup.samples, len(cases.train))
    rehearsed = 0.0 if system.training.examples else sum(system.training.rehearsal.values())  # episodes a sample
    warms_up = needs_warm_up(system, config)
    if warms_up and system.training.examples is None:
        # between all right at once, each played with its opposite decisions too, and all wrong
        tries = samples * ((1 + warmup.attempts) / 2 + (0.5 if system.training.shaping else 0) + rehearsed)
        rule = warmup.teacher == "scripted"
        episodes = 0 if rule else [(tries, as_played(system.teacher_variant()))]
        add("teacher", episodes, 0, memory.get("teacher", 0), rules=tries if rule else 0)
    if warms_up:
        taught = counted.tokens if counted.sft is None else counted.sft
        add("sft", 0, warmup.epochs * samples * (1 + rehearsed) * taught, memory["sft"])
    evaluated = evaluated_variants(system, config)
    for name in further_stages(system, config):
        examples = system.training.stages[name](reader)
        tokens, valid = (_tokens(config, pairs) for pairs in (examples.train, examples.valid))
        epochs = examples.epochs or warmup.epochs
        add(name, 0, epochs * tokens, memory["sft"], passes=4 * epochs * valid)  # every quarter of an epoch
    if rl.updates:
        trained = rl.episodes * trained_share(config)
        batch = trained * (counted.tokens if counted.rl is None else counted.rl)
        validated = (rl.updates // rl.eval_every + 1) * min(rl.eval_samples, len(cases.valid))
        read = trained * (counted.tokens if counted.before is None else counted.before)
        # log-probs, and those of the reference
        before = 0 if config.trainer.method == "rft" else (2 if needs_reference(config) else 1) * read
        episodes = [(rl.updates * rl.episodes + validated, as_played(system.variants[system.main]))]
        add("rl", episodes, rl.updates * rl.epochs * batch, memory["rl"], passes=rl.updates * before)
    models = [variant for variant in evaluated if system.asks_model(variant)]
    tested, fitted = len(cases.test), min(rl.eval_samples, len(cases.valid))  # and a temperature of each, but the base
    plays = [(tested + (fitted if variant.who != "base" else 0), as_played(variant)) for variant in models]
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
    read = passes + sum(n * (of.prompt * of.fresh + of.scored * of.asked) for n, of in plays)
    calls, sampled = sum(n * (of.calls + of.scored) for n, of in plays), sum(n * of.reply for n, of in plays)
    seconds = None
    if speed is not None:
        played = sum(n * (of.steps * speed.step + of.rows * speed.row + of.seconds) for n, of in plays)
        seconds = (read / speed.read + trained / speed.train + played + waited) / processes
    return PlanPhase(name, calls, read, sampled, trained, seconds, held)


def _tokens(config: Config, pairs: Sequence[Any]) -> float:
    """Of pairs of (prompt, reply, ...), from some of them."""
    if not pairs:
        return 0.0
    ids = encoding_of(config)
    counted = sum(len(ids.prompt(prompt)) + len(ids.text(reply)) for prompt, reply, *_ in _spread(pairs))
    return len(pairs) / PROBED * ids.weight * counted


def _spread(pairs: Sequence[Any]) -> list[Any]:
    """`PROBED` of them from the first to the last."""
    return [pairs[i] for i in np.linspace(0, len(pairs) - 1, PROBED).astype(int)] if pairs else []


# ---------------------------------------------------------------- what is written


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
    lora, item = config.model.finetune == "lora", bytes_of_number(config)
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
