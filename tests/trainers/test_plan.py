"""The plan counts what the recipe will do, names what is missing first, and chooses what fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from transformers import GPT2Config, LlamaConfig, MambaConfig

from ghar.config import Zero
from ghar.device import GIB, Device, planned_for
from ghar.envs import system as systems
from ghar.envs.records import Records
from ghar.envs.system import WORDS
from ghar.errors import BadInput
from ghar.inputs import missing
from ghar.launch.entry import load
from ghar.llm.models import load_configured
from ghar.llm.tokens import encode_prompt
from ghar.trainers import memory
from ghar.trainers.base import reader_of
from ghar.trainers.evaluation.evaluate import table_of
from ghar.trainers.memory import checkpoint_copy, estimate, fitted, shape_of, shaped
from ghar.trainers.pass_sizes import Sizes, rl_packing, row_of, sft_packing
from ghar.trainers.plan import PlanPhase, disk_of, longest_played, make_plan, packings, phases_of, probed_sizes, show
from ghar.trainers.probe import EpisodeCounts, encoding_of, probe_variants, reader_without_weights
from ghar.trainers.speed import Speed, _row_seconds, measure, of_all_layers
from tests.llm.families import saved
from tests.running import run_python
from tests.trainers.test_activation_memory import architecture

pytestmark = pytest.mark.slow

SMALL = ("data.patients=60", "model.hidden=32", "model.layers=2", "model.vocab=400")
TINY = shaped(LlamaConfig(
    vocab_size=64, hidden_size=16, intermediate_size=16, num_hidden_layers=3, num_attention_heads=2,
    num_key_value_heads=2,
))  # fmt: skip
COUNTED = EpisodeCounts(3, 300, 6, seconds=0.5, steps=2, rows=5)
SPEED = Speed(train=100, read=1000, step=0.1, row=0.01)


def phases(
    counted: EpisodeCounts, speed: Speed, processes: int, *overrides: str, rehearsal: dict[str, float] | None = None
) -> dict[str, PlanPhase]:
    config = load([*SMALL, *overrides])
    system = systems.build(Records(config))
    if rehearsal is not None:
        system = replace(system, training=replace(system.training, rehearsal=rehearsal))
    memory = {"sft": 2.0, "rl": 3.0}
    return {p.name: p for p in phases_of(system, config, counted, speed, memory, processes)}


def test_calls_tokens_and_hours_by_hand(tmp_path: Path) -> None:
    own = (f"data.cache={tmp_path}", "trainer.rl.updates=20", "trainer.rl.episodes=16", "trainer.rl.kl=0",
           "trainer.rl.eval_every=10", "trainer.rl.eval_samples=1", "trainer.rl.epochs=2")  # fmt: skip
    counted, speed = COUNTED, SPEED
    one, two = (phases(counted, speed, n, *own)["rl"] for n in (1, 2))
    episodes = 20 * 16 + 3  # three validations of one sample: before, halfway, at the end
    assert one.calls == 3 * episodes and one.sampled == 6 * episodes and one.trained == 2 * 20 * 16 * 306
    sampled = episodes * (2 * 0.1 + 5 * 0.01)
    seconds = (300 * episodes + 20 * 16 * 306) / 1000 + sampled + one.trained / 100 + 0.5 * episodes
    assert one.seconds == pytest.approx(seconds) and two.seconds == pytest.approx(seconds / 2)
    assert one.memory == 3.0
    assert phases(replace(counted, scored=9), speed, 1, *own)["rl"] == one, "GHAR's corpus asks no model"
    kept = phases(replace(counted, fresh=0.25), speed, 1, *own)["rl"]
    assert kept.seconds == pytest.approx(seconds - 0.75 * 300 * episodes / 1000)
    packed = phases(replace(counted, sft=80, rl=200, before=150), speed, 1, *own)
    assert packed["rl"].trained == 2 * 20 * 16 * 200 and packed["sft"].trained == one_epoch(own) * 80
    assert packed["rl"].seconds == pytest.approx(
        (300 * episodes + 20 * 16 * 150) / 1000 + sampled + 2 * 20 * 16 * 200 / 100 + 0.5 * episodes
    )
    rft = phases(counted, speed, 1, *own, "trainer.method=rft", "trainer.rl.attempts=4", "trainer.rft.keep=1")["rl"]
    assert rft.trained == 2 * 20 * 4 * 306  # one of four attempts, and no log-probabilities before
    assert rft.seconds == pytest.approx(0.3 * episodes + sampled + rft.trained / 100 + 0.5 * episodes)


def one_epoch(overrides: Sequence[str]) -> float:
    """Episodes of SFT, rehearsed ones included."""
    config = load([*SMALL, *overrides])
    system = systems.build(Records(config))
    rehearsed = sum(system.training.rehearsal.values())
    warmup = config.trainer.warmup
    return warmup.epochs * min(warmup.samples, len(system.cases.train)) * (1 + rehearsed)


def test_a_variant_without_retrieval_is_counted_as_what_it_plays(tmp_path: Path) -> None:
    """Label-only SFT, with weights of its own, asks once; the others are counted as the teacher plays."""
    config = load([*SMALL, f"data.cache={tmp_path}", "eval.variants=[label_sft,ghar_sft,ghar_rl,scripted,ghar_base]",
                   "trainer.rl.eval_samples=5"])  # fmt: skip
    system = systems.build(Records(config))
    shape = shape_of(config)
    assert shape is not None
    variants = probe_variants(system, config, shape)
    assert list(variants) == ["label_sft"] and variants["label_sft"].calls == 1
    assert 0 < variants["label_sft"].prompt and 0 < variants["label_sft"].reply

    once = replace(COUNTED, calls=1, prompt=50, reply=1, seconds=0.0, steps=1, rows=1)
    memory, tested = {"sft": 2.0, "rl": 3.0}, len(system.cases.test)
    counted = {p.name: p for p in phases_of(system, config, COUNTED, SPEED, memory, 1, {"label_sft": once})}
    evaluation, whole, fitted = counted["evaluation"], 3 * tested + 2 * 5, tested + 5
    assert evaluation.calls == 3 * whole + fitted and evaluation.read == 300 * whole + 50 * fitted
    seconds = 0.3 * whole + 0.25 * whole + 0.05 * fitted + 0.11 * fitted + 0.5 * (whole + tested)
    assert evaluation.seconds == pytest.approx(seconds)


def test_a_teacher_is_counted_with_its_own_reach(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 records of 800 tokens and 512 more, where the student reads 2,048; on both kinds of device."""
    student, teacher = replace(TINY, reach=2048), replace(TINY, reach=32_768)
    monkeypatch.setattr(memory, "shape_of", lambda config: teacher)
    monkeypatch.setattr(memory, "activations", lambda one: 1000 * one.rows + one.tokens)
    config = load(["env.history_tokens=800", "model.max_length=8192", "trainer.warmup.teacher=another",
                   "engine.max_batch=8"])  # fmt: skip
    for on, together in ((Device("cpu", 80 * GIB), 1024), (Device("cuda", 80 * GIB), 16_384)):
        for asked, own, other in ((None, 2048, 3712), (3000, 2048, 3000), (700, 700, 700)):
            found = estimate(config, student, 1, on=on, sizes=Sizes(asked))
            for phase, length in (("evaluation", own), ("teacher", other)):
                rows = min(8, max(1, together // length))
                kept, reading = (2 * 8 * length + 16_384) * TINY.cached * 4, 1000 * rows + rows * length
                need = {"weights": 4 * TINY.weights, "engine": kept + reading}
                assert found[phase] == need | ({"student": 4 * TINY.weights} if phase == "teacher" else {})


def test_the_host_holds_the_process_and_prompts_as_long_as_the_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU; beside a GPU libraries, weights and what a checkpoint is written from."""
    rows = [row_of(range(1000 * i, 1000 * i + 150), (1, 2)) for i in range(30)]
    texts = tuple(tuple(rows[i : i + 3]) for i in range(0, 30, 3))
    counted = replace(COUNTED, longest=200, texts=texts)
    monkeypatch.setattr(memory, "activations", lambda one: 1000 * one.rows + one.tokens)
    monkeypatch.setattr("ghar.trainers.plan.probe", lambda system, config, shape: counted)
    process = SimpleNamespace(memory_info=lambda: SimpleNamespace(rss=5 * GIB))
    monkeypatch.setattr("ghar.trainers.plan.psutil", SimpleNamespace(Process=lambda: process))
    config = load([*SMALL, f"data.cache={tmp_path}", "model.lora_rank=8", "model.critic=own"])
    shape = shape_of(config)
    assert shape is not None
    cpu, gpu = Device("cpu", 24 * GIB, "here"), Device("cuda", 80 * GIB, "there")
    records = Records(config)
    system = table_of(systems.build(records), records)
    packed = packings(config, shape, 1, counted)
    # a base's exercises are not played here
    assert probed_sizes(system, config, shape, 1, counted, {}, packed).sft is None
    monkeypatch.setattr("ghar.trainers.plan.makes_base", lambda config, system: False)
    sizes = probed_sizes(system, config, shape, 1, counted, {}, packed)
    taught, played = sft_packing(texts, config, 1, True), rl_packing(texts, config, 1, True)
    assert taught is not None and played is not None
    assert sizes == Sizes(200, config.env.in_flight, taught.largest, played.largest)
    short, long = (estimate(config, shape, 1, on=cpu, sizes=some) for some in (sizes, Sizes()))
    most, copied = {phase: sum(need.values()) for phase, need in short.items()}, checkpoint_copy(config, shape, 1)
    little = replace(cpu, memory=int(most["rl"] + copied) - 1)
    plan, full = (make_plan(config, (1, device)) for device in (cpu, little))
    assert full.host == 5 * GIB + max(most.values())  # without room the checkpoint is written at once
    most["rl"] += copied
    assert plan.host == 5 * GIB + max(most.values()) and (plan.device, plan.free) == ("here", 24 * GIB)
    held = {phase.name: phase.memory for phase in plan.phases}
    for phase, copy in (("sft", 0), ("rl", copied), ("evaluation", 0)):
        assert held[phase] == sum(long[phase].values()) >= most[phase] - copy
    assert held["evaluation"] > most["evaluation"]
    beside = make_plan(config, (1, gpu))
    assert beside.host == 3 * GIB + 4 * shape.weights + copied and copied > 0
    alone = load([*SMALL, f"data.cache={tmp_path}", "model.lora_rank=8", "trainer.rl.updates=0"])
    assert make_plan(alone, (1, gpu)).host == 3 * GIB + 4 * shape.weights


def test_the_examples_of_a_further_stage_are_batched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Label-only fine-tuning reads whole records, where these turns are short."""
    monkeypatch.setattr("ghar.trainers.plan.makes_base", lambda config, system: False)
    config = load([*SMALL, f"data.cache={tmp_path}", "eval.variants=[label_sft]"])
    records, shape = Records(config), shape_of(config)
    assert shape is not None
    system = table_of(systems.build(records), records)
    short = replace(COUNTED, texts=((row_of((1, 2), (3,)),),) * 4, at_once=2)
    both, alone = (
        probed_sizes(
            system, replace(config, eval=replace(config.eval, variants=names)), shape, 1, short, {},
            packings(config, shape, 1, short),
        )
        for names in (("label_sft",), ("ghar_rl",))
    )
    packing = sft_packing(short.texts, config, 1, True)
    assert packing is not None and alone.sft == packing.largest and alone.at_once == 2 * config.env.in_flight
    assert both.sft is not None and alone.sft is not None and both.sft.tokens > alone.sft.tokens


def test_prompts_are_counted_in_the_models_chat_template(tmp_path: Path) -> None:
    folder = saved("smollm2", tmp_path)
    config = load(["model=pretrained", f"model.path={folder}", "model.system_message=You check orders."])
    _, tokenizer = load_configured(config)
    ids = encoding_of(config)
    assert list(ids.prompt("Is it gout?")) == encode_prompt(tokenizer, "Is it gout?")
    assert list(ids.text("It is.")) == tokenizer.encode("It is.", add_special_tokens=False) and ids.weight == 1
    with pytest.raises(BadInput, match="does not read"):
        encoding_of(replace(config, model=replace(config.model, template_arguments={"unknown": True})))


def test_prompts_are_cut_as_training_cuts_them(tmp_path: Path) -> None:
    """By tokens: cut by words, EHR-RAG's labels on MIMIC-IV's demo had 26,000 tokens an example for 4,500."""
    words = ["system=ehr_rag", "data=demo_long_small", "task=labels", "model=pretrained", "env.history_tokens=300",
             f"model.path={saved('smollm2', tmp_path)}", "model.max_length=500", f"data.cache={tmp_path}",
             "eval.variants=[label_sft]", "trainer.rl.updates=0"]  # fmt: skip
    config = load(words)
    model, tokenizer = load_configured(config)
    records, shape = Records(config), shape_of(config)
    assert shape is not None
    system, reader = table_of(systems.build(records), records), reader_without_weights(config, shape)
    assert reader.context == reader_of(tokenizer, model).context
    pairs, ids = system.training.stages["label_sft"](reader).train, encoding_of(config)
    assert pairs == system.training.stages["label_sft"](reader_of(tokenizer, model)).train
    longest = max(len(ids.prompt(prompt)) + len(ids.text(reply)) for prompt, reply, *_ in pairs)
    by_words = system.training.stages["label_sft"](WORDS).train
    assert longest < max(len(ids.prompt(prompt)) for prompt, *_ in by_words)
    planned = phases_of(system, config, COUNTED, SPEED, {"sft": 1.0}, 1, reader=reader)
    [labels] = [phase for phase in planned if phase.name == "label_sft"]
    epochs = system.training.stages["label_sft"](reader).epochs
    assert epochs and labels.trained <= epochs * len(pairs) * longest


def test_a_family_whose_shape_is_unknown_is_refused_by_name(tmp_path: Path) -> None:
    for kind, own in (("gpt2", GPT2Config(n_embd=16, n_layer=2, n_head=2, vocab_size=64)), ("mamba", MambaConfig())):
        own.save_pretrained(tmp_path / kind)
    words = ["model=pretrained", f"model.path={tmp_path}/gpt2"]
    assert shape_of(load(words)).cached == 2 * 2 * 16  # type: ignore[union-attr]  # as many keys as heads
    with pytest.raises(BadInput, match=r"model.path=.*mamba is a mamba, a family whose shape GHAR cannot read"):
        shape_of(load([words[0], f"model.path={tmp_path}/mamba"]))


def test_an_engine_that_takes_no_weights_is_refused_before_anything_is_trained() -> None:
    config = load(["engine=api", "model=pretrained", "model.path=m@http://127.0.0.1:9/v1"])
    assert missing(config)[0] == "engine=api takes no weights: it plays evaluations; choose engine=hf to train."
    assert not any("takes no weights" in one for one in missing(config, training=False))


def test_what_is_missing_names_its_key() -> None:
    [told] = missing(load(["trainer.warmup.teacher=package:no_such"]))
    assert told.startswith("trainer.warmup.teacher=package:no_such needs the Python package no_such")


def test_seconds_of_a_few_layers_are_drawn_out_to_all() -> None:
    """Ten seconds and two a layer; where both numbers are all of the layers, these are timed."""
    timed: list[int] = []

    def seconds(layers: int) -> tuple[float, float]:
        timed.append(layers)
        return 10.0 + 2 * layers, 5.0

    shape = replace(TINY, layers=30)
    assert of_all_layers(seconds, 2, 6, shape) == (pytest.approx(70), pytest.approx(5)) and timed == [2, 6]
    assert of_all_layers(seconds, 30, 30, shape) == (70, 5) and timed[2:] == [30]
    assert of_all_layers(seconds, 2, 1, replace(shape, layers=1)) == (12, 5)


def test_timed_rows_are_read_each_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of rows alike a tree would read one: eight times the speed that there is."""
    read: list[int] = []

    def timed_once(work: Any) -> float:
        hook = torch.nn.modules.module.register_module_forward_pre_hook(
            lambda module, given: read.append(given[0].numel()) if isinstance(module, torch.nn.Embedding) else None
        )
        work()
        hook.remove()
        return 1.0

    monkeypatch.setattr("ghar.trainers.speed._best", timed_once)
    _row_seconds(load([]), TINY, 2, rows=8, length=128, reply=4)
    assert read == [8 * 128] * 2  # trained on and read


def test_a_sampled_token_is_timed_on_more_weights_than_a_processor_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of layers of 16 MiB all 10; of those of 128 MiB two and four; a row costs what a batch takes more than one."""
    timed: list[int] = []

    def step(config: Any, shape: Any, layers: int, length: int, batch: int) -> tuple[float, float]:
        timed.append(layers)
        return 1.0 * layers, 1.0 * layers + 0.7 * (batch - 1)

    monkeypatch.setattr("ghar.trainers.speed._step_seconds", step)
    monkeypatch.setattr("ghar.trainers.speed._row_seconds", lambda *_: (1.0, 1.0))
    config = load(["engine.max_batch=8", "model.dtype=float32"])
    for megabytes, at in ((16, [10]), (128, [2, 4])):
        shape = replace(TINY, layers=10, linear=10 * megabytes * 2**20 // 4)
        speed = measure(config, shape, COUNTED)
        assert (speed.step, speed.row) == (pytest.approx(10 - 0.7), pytest.approx(0.7))
        assert timed == at
        timed.clear()


@pytest.mark.parametrize("teacher", ["scripted", "another"])
def test_attempts_and_rehearsed_episodes_by_hand(tmp_path: Path, teacher: str) -> None:
    """2 of at most 3 attempts, as many opposite ones as half the samples, and of two other variants 0.5 and 0.25."""
    own = (f"data.cache={tmp_path}", "trainer.warmup.samples=8", "trainer.warmup.attempts=3", "trainer.warmup.epochs=2",
           f"trainer.warmup.teacher={teacher}")  # fmt: skip
    counted, speed = COUNTED, SPEED
    found = phases(counted, speed, 1, *own, rehearsal={"one": 0.5, "other": 0.25})
    tries = 8 * (2 + 0.5 + 0.75)
    assert found["sft"].trained == 2 * 8 * 1.75 * 306
    if teacher == "scripted":
        assert (found["teacher"].calls, found["teacher"].sampled) == (0, 0)
        assert found["teacher"].seconds == pytest.approx(tries * 0.5)
    else:
        assert (found["teacher"].calls, found["teacher"].sampled) == (3 * tries, 6 * tries)
        assert found["teacher"].seconds == pytest.approx(tries * (300 / 1000 + 2 * 0.1 + 5 * 0.01 + 0.5))


def test_the_disk_holds_what_each_variant_plays(tmp_path: Path) -> None:
    """A model after each SFT; label-only SFT writes a short prompt a sample, fitted baselines none."""
    from ghar.trainers.evaluation.evaluate import table_of

    once = {"label_sft": replace(COUNTED, prompt=50, reply=1)}
    for names, trained, characters, lora in (
        ("label_sft", 1, 6 * 51 + 2000, "null"), ("label_sft,usual", 1, 6 * 51 + 4000, "8"),
        ("label_sft,ghar_sft,scripted", 2, 6 * (51 + 2 * 306) + 6000, "null"),
    ):  # fmt: skip
        config = load([*SMALL, f"data.cache={tmp_path}", f"eval.variants=[{names}]", "trainer.rl.updates=0",
                       f"model.lora_rank={lora}"])  # fmt: skip
        records, shape = Records(config), shape_of(config)
        assert shape is not None
        system = table_of(systems.build(records), records)
        weights = shape.weights if lora == "null" else 8 * shape.ends
        models = 4 * (shape.weights + trained * weights)  # the first is the demo's base
        expected = models + 2 * weights * (4 + 8) + len(system.cases.test) * characters
        assert disk_of(system, config, shape, COUNTED, once) == expected


def test_prompts_are_as_long_as_those_that_are_played(tmp_path: Path) -> None:
    counted, once = replace(COUNTED, longest=900), {"label_sft": replace(COUNTED, longest=200)}
    system = systems.build(Records(load([*SMALL, f"data.cache={tmp_path}"])))
    for names, updates, longest in (
        ("label_sft", 0, 200), ("label_sft,scripted", 0, 200), ("label_sft", 1, 900), ("label_sft,ghar_base", 0, 900),
    ):  # fmt: skip
        config = load([*SMALL, f"eval.variants=[{names}]", f"trainer.rl.updates={updates}"])
        assert longest_played(system, config, counted, once) == longest
    assert longest_played(system, load([*SMALL]), counted, {"label_sft": replace(COUNTED, longest=1000)}) == 1000


def test_an_evaluation_after_rl_holds_the_weights_that_adapters_are_folded_into() -> None:
    lora, full, alone = (
        estimate(load([f"model.lora_rank={rank}", f"trainer.rl.updates={updates}"]), TINY, 1)["evaluation"]
        for rank, updates in ((8, 1), ("null", 1), (8, 0))
    )
    assert full["weights"] == alone["weights"] == 4 * TINY.weights
    assert lora["weights"] == 4 * (TINY.weights + TINY.linear) and lora["engine"] == full["engine"]


def test_a_plan_of_the_demo_is_made_without_training_anything(tmp_path: Path) -> None:
    config = load([*SMALL, f"data.cache={tmp_path}", f"run_dir={tmp_path / 'run'}"])
    plan = make_plan(config)
    assert [p.name for p in plan.phases] == ["base", "teacher", "sft", "label_sft", "rl", "evaluation"]
    assert plan.seconds and plan.seconds > 0 and plan.disk > 0 and "hours in 1 process" in plan.text()
    assert not (tmp_path / "run").exists()


def test_under_torchrun_the_plan_is_of_all_processes_and_printed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No process group exists yet: the launcher's variables say how many there will be."""
    config = load([*SMALL, f"data.cache={tmp_path}", "threads=1"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, processes in (("1", None), ("0", 2)):
        monkeypatch.setenv("RANK", rank)
        plan = show(config)
        assert (None if plan is None else plan.processes) == processes
        printed = capsys.readouterr().out
        assert ("2 process(es)" in printed) == (rank == "0") and bool(printed) == (rank == "0")
    assert plan is not None
    evaluation = next(phase for phase in plan.phases if phase.name == "evaluation")
    shape = shape_of(config)
    assert shape is not None
    assert evaluation.memory == sum(estimate(config, shape, 2)["evaluation"].values()) > 0


def test_all_that_is_missing_is_named_before_torch_is_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ["+experiment=mimic4_los", f"data.root={tmp_path}/tables", f"kg.path={tmp_path}/kg.csv", "model=pretrained",
             f"model.path={tmp_path}/model", "trainer.base.steps=0"]  # fmt: skip
    said = missing(load(given))
    assert [line.split("=")[0] for line in said] == ["data.root", "kg.path", "model.path"]
    code = (
        "import sys; from ghar.launch.entry import load; from ghar.launch.train import run\n"
        f"try: run(load({given!r}))\n"
        "except Exception as error: print(error); print('torch' in sys.modules)"
    )
    done = run_python("-c", code)
    assert done.stdout.splitlines() == [*said, "False"]
    elsewhere = load([*given, "engine=vllm", "plan=8xh100"])
    monkeypatch.setattr("ghar.inputs.importlib.util.find_spec", lambda name: None)
    assert missing(elsewhere) == said  # the libraries of this machine do not matter there


@pytest.mark.parametrize(("gigabytes", "rank"), [(80, 8), (80, "null"), (40, "null"), (28, "null")])
def test_the_first_stage_that_fits_is_chosen(monkeypatch: pytest.MonkeyPatch, gigabytes: int, rank: int | str) -> None:
    shape, processes, gpu = shaped(architecture("3B")), 8, Device("cuda", gigabytes * GIB)
    monkeypatch.setattr(memory, "shape_of", lambda config: shape)
    config = load(["scale=full", "+experiment=mimic4_los", "data.root=x", "kg.path=y", f"model.lora_rank={rank}"])
    assert config.deepspeed.zero == "auto" and config.engine.memory == 0.35
    ways: tuple[Zero, ...] = ("zero1" if rank == "null" else "none", "zero2", "zero3", "zero3_offload")
    fits = []
    for zero in ways:
        tried = replace(config, deepspeed=replace(config.deepspeed, zero=zero))
        need = max(sum(parts.values()) for parts in estimate(tried, shape, processes, on=gpu).values())
        fits += [zero] if need <= 0.95 * gigabytes * GIB else []
    found = fitted(config, processes, gpu).deepspeed
    assert found.zero == (fits or ways)[0] and found.checkpointing


def test_a_teacher_that_fits_nowhere_does_not_choose_the_stage(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run whose warm-up is left out loads none; where it is needed, no stage makes room for it."""
    shape, gpu = shaped(architecture("3B")), Device("cuda", 40 * GIB)
    giant = replace(shape, weights=1000 * shape.weights)
    config = load(["scale=full", "+experiment=mimic4_los", "data.root=x", "kg.path=y", "model.lora_rank=null"])
    teacher = config.trainer.warmup.teacher
    monkeypatch.setattr(memory, "shape_of", lambda config: giant if config.model.path == teacher else shape)
    chosen = fitted(config, 8, gpu).deepspeed
    assert chosen == fitted(memory.without_teacher(config), 8, gpu).deepspeed and chosen.zero != "zero1"
    assert max(sum(parts.values()) for parts in estimate(config, shape, 8, on=gpu).values()) > gpu.memory


def test_gpus_are_named_with_their_number() -> None:
    assert planned_for("8xH100") == (8, Device("cuda", 79 * GIB, "h100"))
    assert planned_for("l40s") == (1, Device("cuda", 44 * GIB, "l40s"))
    assert planned_for("4x48gb") == (4, Device("cuda", int(48e9 * 0.97), "48gb"))  # no more than an l40s has
    assert planned_for("4x48gb")[1].memory <= planned_for("l40s")[1].memory and planned_for("80gb")[1].reads_far
    assert planned_for("a100-80gb")[1].memory == planned_for("a100")[1].memory
    for wrong, about in (("8xh1000", "did you mean h100"), ("0xh100", "names no GPU"), ("8x", "names no GPU")):
        with pytest.raises(BadInput, match=about):
            planned_for(wrong)
    assert load(["plan=8xh100"]).plan == "8xh100" and load(["plan=true"]).plan is True
    for wrong in ("plan=maybe", "plan=8"):
        with pytest.raises(BadInput, match="must be true or false or GPUs such as 8xh100"):
            load([wrong])


def test_gpus_that_cannot_share_an_engine_are_refused_before_the_cohort_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ghar.trainers.plan.Records", lambda config: pytest.fail("the cohort is read"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    own = [*SMALL, "engine=vllm"]
    with pytest.raises(BadInput, match=r"engine\.gpus=2 is more than there are here \(1\)"):
        show(load([*own, "plan=true", "engine.gpus=2"]))
    for plan in ("true", "3xh100"):
        with pytest.raises(BadInput, match=r"engine\.gpus=3 does not divide the model's"):
            show(load([*own, f"plan={plan}", "engine.gpus=3"]))


def test_a_plan_for_gpus_that_are_not_here_has_their_memory_and_no_hours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Qwen2.5-3B on 3B's true shape: eight H100 hold it, and a T4 is refused with what would fit."""
    monkeypatch.setattr("ghar.trainers.plan.shape_of", lambda config: shaped(architecture("3B")))
    monkeypatch.setattr(memory, "shape_of", lambda config: shaped(architecture("3B")))
    own = [
        *SMALL,
        f"data.cache={tmp_path}",
        "engine.memory=0.35",
        "engine=vllm_gpu",
        "deepspeed=auto",
        "model.dtype=bfloat16",
    ]
    plan = show(load([*own, "plan=8xh100"]))
    assert plan is not None and plan.seconds is None and plan.processes == 8 and plan.device == "h100"
    rl = next(phase for phase in plan.phases if phase.name == "rl")
    assert rl.memory > 0.35 * 79 * GIB and rl.seconds is None
    said = capsys.readouterr().out
    assert "? hours in 8 process(es); 79.0 GiB of h100 are free to each" in said and "Hours are not known" in said
    with pytest.raises(BadInput, match=r"GiB of cuda memory in each process during .* 14\.5 are free"):
        show(load([*own, "plan=t4"]))
    shared = show(load([*own, "plan=2xh100", "engine.gpus=2"]))
    assert shared is not None and shared.processes == 1  # which uses both
    with pytest.raises(BadInput, match=r"plan names 8 GPUs, and engine\.gpus=2 .* write plan=2xh100"):
        show(load([*own, "plan=8xh100", "engine.gpus=2"]))


def test_what_selectors_have_the_model_read_is_counted() -> None:
    variants = "eval.variants=[semantic_emb,graphwalker,ids]"
    config = load(["system=graphwalker", "task=read", "data.patients=60", variants])
    system = systems.build(Records(config))
    planned = phases_of(system, config, replace(COUNTED, calls=1), SPEED, {"sft": 1.0, "rl": 1.0}, 1)
    one, walk = {p.name: p for p in planned}["evaluation"], 1 + 3 * 3 + 2 * 8  # of the defaults k, k_c, k_a and k_g
    patients = len(system.cases.test) + min(config.trainer.rl.eval_samples, len(system.cases.valid))
    assert one.calls == patients * (3 + walk + 3)  # an answer of each, the walk, and IDS's three reasonings
    assert one.read == patients * 300 * (3 + walk + 3)
