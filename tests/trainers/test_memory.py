"""What does not fit is refused before it is loaded, and what is said to fit does."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig, Qwen2Config

from ghar.config import Config
from ghar.device import GIB, Device
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.demo_model import build_model
from ghar.llm.tensor_parallel import WORKER
from ghar.trainers import memory
from ghar.trainers.memory import (
    check_machine,
    check_memory,
    checkpoint_copy,
    estimate,
    shape_of,
    shaped,
    without_teacher,
)

pytestmark = pytest.mark.slow

CPU, H100 = Device("cpu", 24 * GIB), Device("cuda", 80 * GIB)
SMALL = ("model.hidden=64", "model.layers=2", "model.vocab=512")
BIG = shaped(Qwen2Config(  # Qwen2.5-3B
    vocab_size=151_936, hidden_size=2048, intermediate_size=11_008, num_hidden_layers=36, num_attention_heads=16,
    num_key_value_heads=2, max_position_embeddings=32_768, tie_word_embeddings=True,
))  # fmt: skip


@cache
def config(*overrides: str) -> Config:
    return load([*overrides])


class Words:
    pad_token_id, eos_token_id = 0, 1

    def __len__(self) -> int:
        return 512


def test_the_shape_is_the_models(tmp_path: Path):
    model = build_model(Words(), hidden=64, layers=2, seed=0)
    shape = shape_of(config(*SMALL))
    assert shape is not None and shape.weights == sum(p.numel() for p in model.parameters())
    model.save_pretrained(tmp_path)
    pretrained = config("model=pretrained", f"model.path={tmp_path}", "trainer.base.steps=0")
    found = shape_of(pretrained)
    assert found is not None and replace(found, architecture=shape.architecture) == shape
    missing = config("model=pretrained", f"model.path={tmp_path / 'none'}", "trainer.base.steps=0")
    assert shape_of(missing) is None  # load_pretrained says why


def test_adapters_have_as_many_weights_as_peft_makes():
    from ghar.trainers.evaluation.weights import make_actor

    small = config(*SMALL, "model.lora_rank=8", "model.critic=own")
    shape = shape_of(small)
    assert shape is not None
    actor = make_actor(small, build_model(Words(), hidden=64, layers=2, seed=0), ("top", "low"))
    heads = sum(p.numel() for p in actor.heads.parameters())
    trained = sum(p.numel() for p in actor.trainable_parameters()) - heads
    assert estimate(small, shape, 1)["rl"]["optimiser"] == 8 * trained


def test_a_checkpoint_is_written_from_a_copy_of_what_is_trained():
    """float32 weights and moments of each adapter; in full, 2 bytes a weight on process 0 and an eighth of 12."""
    small = config(*SMALL, "model.lora_rank=8", "model.critic=own", "trainer.rl.estimator=gae")
    assert checkpoint_copy(small, SMALL_REAL, 1) == 2 * 12 * 8 * SMALL_REAL.ends
    shared = config("model.lora_rank=null", "deepspeed=zero2", "model.dtype=bfloat16", "model.critic=head")
    assert checkpoint_copy(shared, BIG, 8) == (2 + 12 / 8) * BIG.weights
    assert checkpoint_copy(config("trainer.method=plain"), BIG, 1) == 0
    assert not any("checkpoint" in need for need in estimate(small, SMALL_REAL, 1, on=CPU).values())


def test_a_checkpoint_is_copied_where_the_update_fits_beside_it(monkeypatch: pytest.MonkeyPatch):
    one = config("model.lora_rank=null", "trainer.rl.estimator=rloo")
    monkeypatch.setattr(memory, "shape_of", lambda config: SMALL_REAL)
    monkeypatch.setattr(memory, "this_device", lambda: CPU)
    need = estimate(one, SMALL_REAL, 1, on=CPU)["rl"]
    copied = checkpoint_copy(one, SMALL_REAL, 1)
    assert memory.room_for_copy(one) == copied + need["gradients"] + need["activations"]
    monkeypatch.setattr(memory, "this_device", lambda: H100)
    assert memory.room_for_copy(one) == copied
    monkeypatch.setattr(memory, "shape_of", lambda config: None)
    assert memory.room_for_copy(one) == 0


def test_stages_share_out_what_they_should():
    def need(stage: str, processes: int) -> dict[str, float]:
        return estimate(config("model.lora_rank=null", f"deepspeed={stage}"), BIG, processes)["rl"]

    assert need("zero1", 4)["optimiser"] == need("zero1", 1)["optimiser"] / 4
    assert need("zero1", 4)["weights"] == need("zero2", 4)["weights"] == 4 * need("zero3", 4)["weights"]
    assert need("zero0", 4)["gradients"] == need("zero1", 4)["gradients"] == 4 * need("zero2", 4)["gradients"]


def test_zero_3_gathers_all_weights_to_play():
    """Actor and reference of 3 billion weights, whatever the number of processes; LoRA's merged copy besides."""
    full = config("model.lora_rank=null", "deepspeed=zero3", "trainer.rl.micro_tokens=2048")
    lora = config("model.lora_rank=8", "model.critic=head", "deepspeed=zero3", "trainer.rl.micro_tokens=2048")
    assert estimate(full, BIG, 64)["rl"]["activations"] >= 2 * BIG.weights * 4
    assert estimate(lora, BIG, 64)["rl"]["activations"] >= (BIG.weights + BIG.linear) * 4


@settings(max_examples=10)
@given(
    free=st.floats(0.5, 200).map(lambda gib: int(gib * GIB)),
    rank=st.sampled_from([8, "null"]),
    stage=st.sampled_from(["none", "zero2"]),
    processes=st.sampled_from([1, 4]),
)
def test_the_advice_fits(free: int, rank: int | str, stage: str, processes: int):
    overrides = [f"model.lora_rank={rank}", f"deepspeed={stage}", "trainer.rl.micro_tokens=16384"]
    try:
        check_memory(config(*overrides), BIG, processes, free, H100)
    except BadInput as error:
        advice = re.search(r"are free: (.*) would fit", str(error))
        if advice is None:
            assert "take a model of at most about" in str(error)
            return
        changed = {text.split("=")[0] for text in advice[1].split()}
        kept = [text for text in overrides if text.split("=")[0] not in changed]
        check_memory(config(*kept, *advice[1].split()), BIG, processes, free, H100)


SMALL_REAL = shaped(LlamaConfig(  # SmolLM2-135M
    vocab_size=49_152, hidden_size=576, intermediate_size=1536, num_hidden_layers=30, num_attention_heads=9,
    num_key_value_heads=3, max_position_embeddings=8192, tie_word_embeddings=True,
))  # fmt: skip


def test_the_advice_names_the_key_that_decides_and_no_other():
    """What is lowered is what the worst phase is made of: the warm-up's micro-batches here, prompts in flight there."""
    long = ("env.history_tokens=2048", "model.max_length=8192", "deepspeed=zero2", "model.lora_rank=8")
    warm = config(*long, "trainer.warmup.micro_batch=16", "trainer.warmup.batch=16", "engine.max_batch=4")
    over = int(0.7 * sum(estimate(warm, SMALL_REAL, 1)["sft"].values()))
    with pytest.raises(BadInput, match=r"during sft .* are free: trainer\.warmup\.micro_batch=\d+ would fit"):
        check_memory(warm, SMALL_REAL, 1, over, CPU)
    many = config(*long, "engine.max_batch=256")
    over = int(0.6 * sum(estimate(many, SMALL_REAL, 1, training=False)["evaluation"].values()))
    with pytest.raises(BadInput, match=r"^Evaluating .* are free: engine\.max_batch=128 would fit"):
        check_memory(many, SMALL_REAL, 1, over, CPU, training=False)


def test_a_teacher_that_is_loaded_has_a_phase_of_its_own(tmp_path: Path):
    assert "teacher" not in estimate(config(*SMALL), SMALL_REAL, 1)
    small = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4}
    Qwen2Config(vocab_size=512, hidden_size=256, intermediate_size=512, **small).save_pretrained(tmp_path)
    taught = config(*SMALL, f"trainer.warmup.teacher={tmp_path}")
    teacher = shape_of(replace(taught, model=replace(taught.model, path=str(tmp_path))))
    assert teacher is not None
    assert estimate(taught, SMALL_REAL, 1)["teacher"]["weights"] == 4 * teacher.weights
    assert "teacher" not in estimate(taught, SMALL_REAL, 1, training=False)
    assert "teacher" not in estimate(without_teacher(taught), SMALL_REAL, 1)


def test_an_evaluation_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    from ghar.trainers.evaluation.evaluate import evaluate

    monkeypatch.setattr(memory, "free_memory", lambda device: 1 << 20)
    with pytest.raises(BadInput, match=r"^Evaluating this model"):
        evaluate(config(*SMALL, "data.patients=40", f"run_dir={tmp_path / 'run'}"))


def test_gpus_that_share_an_engine_each_hold_a_part_of_it(monkeypatch: pytest.MonkeyPatch):
    """Weights and the widest layer are divided, keys and values are as many as set, and a worker process adds its own;
    a share of each GPU stays one."""
    one, two = (config("engine=vllm", "model.dtype=bfloat16", f"engine.gpus={n}") for n in (1, 2))
    whole, half = (estimate(c, BIG, 1, on=H100)["rl"] for c in (one, two))
    less = BIG.weights * 2 / 2 + 16_384 * 2 * 3 * 11_008 / 2 - WORKER
    assert whole["engine"] - half["engine"] == pytest.approx(less)
    assert {**whole, "engine": 0} == {**half, "engine": 0}
    share = estimate(config("engine=vllm_gpu", "model.dtype=bfloat16", "engine.gpus=2"), BIG, 1, on=H100)
    assert share["rl"]["engine"] == 0.35 * 80 * GIB
    check_memory(two, BIG, 1, 120 * GIB, H100)  # all weights are trained in one process
    with pytest.raises(BadInput, match=r"engine\.gpus=3 does not divide the model's 16 attention heads"):
        check_memory(replace(two, engine=replace(two.engine, gpus=3)), BIG, 1, 80 * GIB, H100)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(BadInput, match=r"engine\.gpus=2 is more than there are here"):
        check_machine(config(*SMALL, "engine=vllm", "engine.gpus=2"))


def test_too_little_memory_is_said_with_its_parts():
    message = (
        r"3\.1 billion weights needs about \d+\.\d GiB of cpu memory in each process during sft \(weights \d+\.\d, "
        r"optimiser .*\), but 20\.0 are free: deepspeed\.checkpointing=true .* would fit"
    )
    with pytest.raises(BadInput, match=message):
        check_memory(config("model.lora_rank=null"), BIG, 1, 20 * GIB, CPU)


def test_a_run_is_checked_before_it_starts(monkeypatch: pytest.MonkeyPatch):
    check_machine(config(*SMALL))
    monkeypatch.setattr(memory, "free_memory", lambda device: 1 << 20)
    with pytest.raises(BadInput, match="take a model of at most about"):
        check_machine(config(*SMALL))


def test_adamw_on_bfloat16_weights_is_refused():
    full = "model.lora_rank=null", "model.dtype=bfloat16"
    with pytest.raises(BadInput, match=r"deepspeed=zero1 \(or higher"):
        check_machine(config(*SMALL, *full))
    check_machine(config(*SMALL, *full, "deepspeed=zero1"))
    check_machine(config(*SMALL, *full, "trainer.rl.updates=0"))  # SFT alone steps on float32 copies
    short, exact = (estimate(config(full[0], f"model.dtype={d}"), BIG, 1)["sft"] for d in ("bfloat16", "float32"))
    assert all(short[name] == exact[name] for name in ("weights", "optimiser", "gradients"))


def test_a_critic_of_its_own_keeps_its_weights_and_moments_as_the_policy_does():
    gae = ("model.lora_rank=null", "trainer.rl.estimator=gae")
    own, head = (config(*gae, f"model.critic={critic}") for critic in ("own", "head"))
    needs = [estimate(c, BIG, 2)["rl"] for c in (own, head)]
    assert needs[0]["critic"] == 3 * 4 * BIG.weights and "critic" not in needs[1]
    free = config("model.lora_rank=null", "trainer.rl.estimator=rloo", "trainer.rl.attempts=2")
    assert "critic" not in estimate(free, BIG, 2)["rl"]
    shared = ("model.dtype=bfloat16", "model.critic=own", *gae)
    for stage, weights, gradients in (("zero1", 2, 4), ("zero2", 2, 4), ("zero3", 2 / 8, 4)):
        need = estimate(config(*shared, f"deepspeed={stage}"), BIG, 8)["rl"]
        assert need["critic"] == pytest.approx((weights + 12 / 8 + gradients / 8) * BIG.weights)


@pytest.mark.parametrize("stage", ["zero1", "zero2"])
def test_the_papers_setting_fits_eight_gpus_under_every_stage(stage: str):
    full = ("scale=full", "+experiment=mimic4_los", "data.root=x", "kg.path=y", f"deepspeed={stage}")
    check_memory(config(*full), BIG, 8, 80 * GIB, H100)
