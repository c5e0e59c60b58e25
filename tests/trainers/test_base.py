"""The demo's base model: its tokenizer, its way to disk and back, and that runs share it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from ghar.config import Config
from ghar.envs.ghar.pretraining import PACKAGED, teacher_knowledge
from ghar.envs.play import play, stage_of
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.llm.hf import HFEngine
from ghar.llm.models import load_pretrained
from ghar.llm.policy import EnginePolicy
from ghar.llm.tokens import encode_prompt
from ghar.metrics.runfolder import RunFolder
from ghar.provenance import learned_from_credentialed
from ghar.trainers.base import base_key, base_steps, build_base, packaged_base, reader_of, start_model
from ghar.trainers.runs.manifest import fault
from ghar.trainers.runs.models import SFT, load_sft, save_model


def tiny(config: Config, steps: int) -> Config:
    model = replace(config.model, hidden=32, layers=2, vocab=1600)
    base = replace(config.trainer.base, steps=steps, batch=16)
    return replace(config, model=model, trainer=replace(config.trainer, base=base))


@pytest.fixture(scope="module")
def base(small_records, small_system):
    rows: list[dict] = []
    model, tokenizer = build_base(tiny(small_records.config, 0), small_system.training.pretraining, rows.append)
    return model, tokenizer, rows


@pytest.mark.slow
def test_without_steps_the_base_is_untrained_but_can_be_asked(small_records, small_system, base):
    model, tokenizer, rows = base
    assert not rows and model.config.vocab_size == len(tokenizer) <= 1600
    system = small_system.read_by(reader_of(tokenizer, model))
    stage = stage_of(system, system.variants[system.main], small_records.config)
    policy = EnginePolicy(HFEngine(model, tokenizer))
    for episode in play(stage, system.cases.valid[:3], policy, seed=1, title=""):
        assert episode.failure is None and all(t.trainable for t in episode.turns)


def test_who_reads_counts_tokens_and_not_words(small_records, small_system, base):
    model, tokenizer, _ = base
    budget = small_records.config.env.history_tokens
    cases = small_system.read_by(reader_of(tokenizer, model)).cases
    assert [case.label for case in cases.train] == [case.label for case in small_system.cases.train]
    assert all(len(encode_prompt(tokenizer, case.text)) <= budget for part in vars(cases).values() for case in part)


def test_grades_and_known_topics_are_single_tokens(base, small_records):
    _, tokenizer, _ = base
    known = [topic.split(" ", 1)[1] for topic in list(teacher_knowledge(small_records).grades)[:20]]
    for text in (*(f"grade {g} course" for g in range(10)), *known):
        assert len(encode_prompt(tokenizer, " " + text)) == 1, text


@pytest.mark.slow
def test_a_base_is_made_once_and_shared_by_whoever_would_make_the_same(small_records, small_system, tmp_path: Path):
    config = tiny(small_records.config, 1)
    config = replace(config, data=replace(config.data, cache=str(tmp_path / "cache")))
    told: list[list[int]] = []
    for name in ("first", "second"):
        rows: list[dict] = []
        own = Records(replace(config, seed=len(told)))  # a run of another seed starts from the same base
        start_model(small_system, own, RunFolder.open(tmp_path / name), rows.append)
        told.append([row["step"] for row in rows])
    assert told == [[1], []] and len(list((tmp_path / "cache" / "bases").iterdir())) == 1
    files = [tmp_path / name / "checkpoints" / "base" / "model.safetensors" for name in ("first", "second")]
    weights = [file.read_bytes() for file in files]
    assert weights[0] == weights[1]
    keys = [base_key(tiny(small_records.config, steps), small_system.training.pretraining) for steps in (0, 1)]
    assert keys[0] != keys[1] == base_key(config, small_system.training.pretraining)

    packaged = replace(small_system.training.pretraining, packaged=tmp_path / "cache" / "bases")
    base = config.trainer.base
    for steps, seed, there in ((1, None, True), (2, None, False), (0, None, False), (1, 0, False)):
        wanted = replace(config.trainer, base=replace(base, steps=steps, seed=seed))
        assert (packaged_base(replace(config, trainer=wanted), packaged) is not None) == there, (steps, seed)


def test_the_package_has_one_base_model_and_it_is_sound():
    """That its recipe is today's is seen where `--quick` takes it (tests/docs/test_pages.py); that it is made again to
    the byte, by `benchmarks/run.py base_model`, which takes minutes."""
    [folder] = PACKAGED.iterdir()
    assert fault(folder) is None and base_steps(folder, 0) == 3500
    assert sum(file.stat().st_size for file in folder.iterdir()) < 1.4e6
    assert not learned_from_credentialed(folder)


def test_the_warmed_up_policy_comes_back_from_disk(base, small_records, small_system, tmp_path):
    model, tokenizer, _ = base
    save_model(model, tokenizer, tmp_path / SFT)
    save_model(model, tokenizer, tmp_path / SFT)  # a second time changes nothing
    assert [path.name for path in tmp_path.iterdir()] == ["sft"]
    again, words = load_sft(small_records.config, tmp_path)
    case = small_system.read_by(reader_of(tokenizer, model)).cases.valid[0]
    ids = encode_prompt(tokenizer, f"predict los\n{case.text}\nanswer:")
    assert encode_prompt(words, f"predict los\n{case.text}\nanswer:") == ids
    with torch.inference_mode():
        batch = torch.tensor([ids])
        assert torch.equal(again(input_ids=batch).logits, model(input_ids=batch).logits)


def test_a_model_that_is_not_there_is_named(small_records, tmp_path):
    with pytest.raises(BadInput, match="holds no model"):
        load_sft(small_records.config, tmp_path)
    with pytest.raises(BadInput, match=r"model.path=.*nothing cannot be loaded"):
        load_pretrained(str(tmp_path / "nothing"), "float32")
