"""The canary in bfloat16: an engine of other rounding with the right weights passes, stale or damaged ones fail."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from benchmarks.sync import adapted, damaged
from ghar.errors import fate
from ghar.llm import canary
from ghar.llm.canary import Canary, EngineProbe, TrainerScores, WrongWeights, expect, in_float32, trainer_logprobs
from ghar.llm.weight_update import WeightUpdate, pack
from tests.smollm2 import needs_smollm2, smollm2_folder
from tests.trainers.tiny import tiny_tokenizer

SYNCS = 60  # of SmolLM2 with vLLM: python benchmarks/run.py sync
IDS = tuple((7919 * i + 11) % 512 for i in range(64))


class Engine:
    """Holds a copy of its own in bfloat16, computed by another kernel and in another order than the trainer's: eager
    attention, and batches of two rows."""

    def __init__(self, model: Any) -> None:
        self.model = copy.deepcopy(model)
        self.model.set_attn_implementation("eager")
        self.canary = Canary()

    def receive(self, parcels: list[WeightUpdate]) -> None:
        for parcel in parcels:
            parcel.check()
        self.model.load_state_dict(dict(parcels[0].weights), strict=False)

    @torch.no_grad()
    def probe(self, ids: tuple[int, ...]) -> EngineProbe:
        logits = self.model(input_ids=torch.tensor([ids, ids[::-1]])).logits[0]
        scored = logits[:-1].float().log_softmax(-1).gather(1, torch.tensor(ids)[1:, None]).squeeze(1)
        return EngineProbe(ids, tuple(scored.tolist()), ())

    def judge(self, trainer: Any) -> float:
        return self.canary.judge(expect(trainer, IDS), self.probe(IDS))


def trainer(seed: int = 0, spread: float = 3) -> Any:
    """8 layers in bfloat16 whose logits have that spread."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=512, hidden_size=64, intermediate_size=192, num_hidden_layers=8, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.mul_(spread / float(model(input_ids=torch.arange(64)[None]).logits.std()))
    return model.bfloat16()


def one_update(model: Any, generator: torch.Generator) -> None:
    """A step of AdamW's size at the paper's learning rate: about 1e-4 a weight, either way, rounded to bfloat16."""
    with torch.no_grad():
        for p in model.parameters():
            p.copy_((p.float() + 1e-4 * torch.randn(p.shape, generator=generator).sign()).to(p.dtype))


def syncs(count: int) -> dict[str, float]:
    """Alarms at right weights, and the shares found of weights one update behind and of parcels with a flipped bit."""
    generator = torch.Generator().manual_seed(1)
    model = trainer()
    engine = Engine(model)
    engine.judge(model)
    false, stale, flipped, furthest = 0, 0, 0, 0.0
    for _ in range(count):
        one_update(model, generator)
        parcels = [parcel.sealed() for parcel in pack(model, False)]
        behind, expected = copy.copy(engine.canary), expect(model, IDS)  # the engine keeps what it had
        try:
            behind.judge(expected, engine.probe(IDS))
        except WrongWeights:
            stale += 1
        try:
            engine.receive([damaged(parcels[0], np.random.default_rng(flipped))])
        except WrongWeights:
            flipped += 1
        engine.receive(parcels)
        try:
            furthest = max(furthest, engine.canary.judge(expected, engine.probe(IDS)))
        except WrongWeights:
            false += 1
    return {"false": false, "stale": stale / count, "flipped": flipped / count, "furthest": furthest}


@pytest.mark.slow
def test_no_false_alarm_and_every_stale_or_damaged_parcel_found() -> None:
    found = syncs(SYNCS)
    assert found["false"] == 0 and found["stale"] >= 0.99 and found["flipped"] >= 0.99
    assert found["furthest"] < 0.05


def test_other_weights_differ_by_more_than_rounding() -> None:
    model = trainer()
    with pytest.raises(WrongWeights, match="differ by"):
        Engine(trainer(seed=5)).judge(model)


@pytest.mark.slow
def test_rounding_is_no_alarm_however_large_it_is() -> None:
    """Logits of spread 25, as of a trained model: bfloat16 alone is 0.2 nats from float32."""
    model = trainer(spread=25)
    expected = expect(model, IDS)
    assert 0.1 < Engine(model).judge(model) < expected.allowed < 2
    with pytest.raises(WrongWeights, match="differ by"):
        Engine(trainer(seed=5, spread=25)).judge(model)


@pytest.mark.parametrize("adapter", [False, True])
def test_the_trainers_pass_in_float32_is_that_of_its_own_weights(adapter: bool) -> None:
    model = adapted(trainer()) if adapter else trainer()
    if adapter:
        with torch.no_grad():
            for name, p in model.named_parameters():
                p.normal_(0, 0.1) if "lora_B" in name else None
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with in_float32(model):
        exact = trainer_logprobs(model, IDS)
    assert torch.allclose(exact, trainer_logprobs(copy.deepcopy(model).float(), IDS), atol=1e-5)
    assert not torch.allclose(exact, trainer_logprobs(model, IDS), atol=1e-3)
    for name, p in model.named_parameters():
        assert p.dtype == torch.bfloat16 and torch.equal(p, before[name])


def test_weights_come_back_where_the_pass_in_float32_fails() -> None:
    model = trainer()
    with pytest.raises(IndexError), in_float32(model):
        model(input_ids=torch.tensor([[9999]]))
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_a_move_that_rounding_swallows_is_no_alarm_until_it_shows() -> None:
    """An engine in 16 bits may answer a tiny update to the last bit as before; half of the tokens must have moved."""
    model, own = trainer(), Canary()
    expected, probe = expect(model, IDS), Engine(model).probe(IDS)
    own.judge(expected, probe)
    moved = list(expected.logprobs)
    for n in range(len(moved)):
        moved[n] += 1e-4  # one token more at each exchange
        said = TrainerScores(expected.ids, tuple(moved), expected.exact, expected.dtype)
        if n + 1 < len(moved) / 2:
            own.judge(said, probe)
        else:
            with pytest.raises(WrongWeights, match="to the last bit"):
                own.judge(said, probe)


def test_the_fixed_text_is_text_where_the_tokenizer_knows_it() -> None:
    assert canary.prompt(tiny_tokenizer(), 512, 1000) == list(IDS)
    assert len(canary.prompt(tiny_tokenizer(), 512, 40)) == 32


@needs_smollm2
@pytest.mark.slow
def test_one_tensor_with_its_sign_turned_is_found_on_a_real_model() -> None:
    """All 272 by `ghar.llm.canary`'s rule; here those that change least, and one that was not sent."""
    from transformers import AutoTokenizer

    from ghar.llm.models import load_pretrained

    tokenizer = AutoTokenizer.from_pretrained(smollm2_folder())
    model = load_pretrained(smollm2_folder(), "bfloat16")[0].eval()
    ids = canary.prompt(tokenizer, model.config.vocab_size, 2048)
    assert "emergency department" in tokenizer.decode(ids) and len(ids) == canary.PROMPT_TOKENS
    expected = expect(model, ids)
    assert expected.allowed < 0.13
    weights = dict(model.named_parameters())
    for name in ("layers.28.self_attn.k_proj", "layers.29.self_attn.q_proj", "layers.8.input_layernorm"):
        with torch.no_grad():
            weights[f"model.{name}.weight"].neg_()
            probe = EngineProbe(tuple(ids), tuple(trainer_logprobs(model, ids).tolist()), ())
            weights[f"model.{name}.weight"].neg_()
        with pytest.raises(WrongWeights, match="differ by"):
            Canary().judge(expected, probe)


def test_float32_is_judged_by_the_largest_difference() -> None:
    model = trainer().float()
    expected = expect(model, IDS)
    scored = trainer_logprobs(model, expected.ids)
    Canary().judge(expected, EngineProbe(expected.ids, tuple(scored.tolist()), ()))
    scored[5] += 1e-3
    with pytest.raises(WrongWeights):
        Canary().judge(expected, EngineProbe(expected.ids, tuple(scored.tolist()), ()))


def test_wrong_weights_end_a_run_with_a_sentence_and_a_way_on():
    said = fate(WrongWeights("engine and trainer differ by 0.9 nats: the run stops here."))
    assert said is not None and said.startswith("engine and trainer differ by 0.9 nats") and "engine=hf" in said
    caused = RuntimeError("worker")
    caused.__cause__ = WrongWeights("they differ.")
    assert "they differ." in str(fate(caused))
