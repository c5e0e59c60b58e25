"""The canary in bfloat16: an engine of other rounding with the right weights passes, stale or damaged ones fail."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from ghar.errors import fate
from ghar.llm.canary import Canary, EngineProbe, WrongWeights, expect, trainer_logprobs
from ghar.llm.weight_update import WeightUpdate, pack

SYNCS = 60  # 1,000 by `python -m tests.llm.test_canary`


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
        expected = expect(trainer)
        return self.canary.judge(expected, self.probe(expected.ids))


def trainer(seed: int = 0) -> Any:
    """8 layers in bfloat16 whose logits have a spread of 3."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=512, hidden_size=64, intermediate_size=192, num_hidden_layers=8, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, tie_word_embeddings=False,
    )  # fmt: skip
    model = Qwen2ForCausalLM(config).eval()
    with torch.no_grad():
        spread = float(model(input_ids=torch.arange(64)[None]).logits.std())
        model.lm_head.weight.mul_(3 / spread)
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
        behind = copy.copy(engine.canary)  # the engine keeps what it had
        try:
            behind.judge(expect(model), engine.probe(expect(model).ids))
        except WrongWeights:
            stale += 1
        name, tensor = parcels[0].weights[int(torch.randint(len(parcels[0].weights), (), generator=generator))]
        damaged = tensor.clone()
        at = int(torch.randint(damaged.numel(), (), generator=generator))
        damaged.view(-1).view(torch.int16)[at] ^= 1 << int(torch.randint(16, (), generator=generator))
        weights = [(n, damaged if n == name else t) for n, t in parcels[0].weights]
        try:
            engine.receive([replace(parcels[0], weights=weights)])
        except WrongWeights:
            flipped += 1
        engine.receive(parcels)
        try:
            furthest = max(furthest, engine.judge(model))
        except WrongWeights:
            false += 1
    return {"false": false, "stale": stale / count, "flipped": flipped / count, "furthest": furthest}


@pytest.mark.slow
def test_no_false_alarm_and_every_stale_or_damaged_parcel_found() -> None:
    found = syncs(SYNCS)
    assert found["false"] == 0 and found["stale"] >= 0.99 and found["flipped"] >= 0.99
    assert found["furthest"] < 0.05  # half of what is allowed


def test_other_weights_differ_by_more_than_rounding() -> None:
    model = trainer()
    with pytest.raises(WrongWeights, match="differ by"):
        Engine(trainer(seed=5)).judge(model)


def test_float32_is_judged_by_the_largest_difference() -> None:
    model = trainer().float()
    expected = expect(model)
    scored = trainer_logprobs(model, expected.ids)
    Canary().judge(expected, EngineProbe(expected.ids, tuple(scored.tolist()), ()))
    scored[5] += 1e-3
    with pytest.raises(WrongWeights):
        Canary().judge(expected, EngineProbe(expected.ids, tuple(scored.tolist()), ()))


if __name__ == "__main__":
    print(syncs(1000))


def test_wrong_weights_end_a_run_with_a_sentence_and_a_way_on():
    said = fate(WrongWeights("engine and trainer differ by 0.9 nats: the run stops here."))
    assert said is not None and said.startswith("engine and trainer differ by 0.9 nats") and "engine=hf" in said
    caused = RuntimeError("worker")
    caused.__cause__ = WrongWeights("they differ.")
    assert "they differ." in str(fate(caused))
