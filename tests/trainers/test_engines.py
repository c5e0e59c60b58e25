"""Engines by configuration, and an engine with an actor's weights."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch

from ghar.config import Config
from ghar.errors import BadInput
from ghar.launch.entry import load
from ghar.llm.canary import WrongWeights, expect
from ghar.llm.engines import make_engine
from ghar.llm.hf import HFEngine
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.serving import serving
from tests.trainers.tiny import for_two, perturb, tiny_model, tiny_tokenizer


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([[2, 3, 4]])).logits


@pytest.fixture
def actor() -> ActorCritic:
    return perturb(ActorCritic(tiny_model(), for_two(finetune="lora", rank=4)))


def test_the_hf_engine_serves_the_merged_actor_and_a_plain_model(actor):
    engine = make_engine(load(), actor.model, tiny_tokenizer())
    assert isinstance(engine, HFEngine)
    expected, base = logits(actor.model), tiny_model()
    with serving(engine, actor, 7):
        assert engine.version == 7 and torch.allclose(logits(engine.model), expected, atol=1e-5)
        assert any(getattr(m, "merged", False) is True for m in engine.model.modules())
    assert torch.equal(logits(actor.model), expected)
    with serving(engine, base, 8):
        assert engine.model is base and engine.version == 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_folded_adapter_is_judged_at_every_sync_and_taken_back_exactly(dtype):
    """Log-probs of the played model are the actor's within rounding, also after an update."""
    actor = perturb(ActorCritic(tiny_model().to(dtype), for_two(finetune="lora", rank=4)))
    engine = HFEngine(actor.model, tiny_tokenizer())
    base = {name: p.detach().clone() for name, p in actor.policy.named_parameters() if "lora_" not in name}
    for version in range(2):
        expected = expect(actor.model, range(2, 40))
        with serving(engine, actor, version):
            played = torch.tensor(engine.probe(expected.ids).scored)
        apart = (played - torch.tensor(expected.exact)).abs()
        own = (torch.tensor(expected.logprobs) - torch.tensor(expected.exact)).abs()
        assert float(apart.mean()) <= max(1e-6, 2 * float(own.mean()))
        now = dict(actor.policy.named_parameters())
        assert all(torch.equal(now[name], weight) for name, weight in base.items())
        perturb(actor, seed=2 + version)


def test_a_folded_adapter_is_judged_once_for_each_version(actor, monkeypatch):
    engine, judged = HFEngine(actor.model, tiny_tokenizer()), []
    monkeypatch.setattr(engine, "judge", lambda expected: judged.append(engine.version))
    for version in (0, 0, 1, 1, 2):
        with serving(engine, actor, version):
            pass
    assert judged == [0, 1, 2]


def test_an_adapter_that_was_not_folded_in_stops_the_run_at_every_try(actor, monkeypatch):
    engine = HFEngine(actor.model, tiny_tokenizer())
    base = tiny_model()
    monkeypatch.setattr(actor, "merged", lambda: nullcontext(base))
    for _ in range(2):
        with pytest.raises(WrongWeights, match="differ by"), serving(engine, actor, 0):
            pass


class Remote:
    """Stands for an engine that holds a copy of its own."""

    def __init__(self, takes_adapters: bool):
        self.version, self.takes_adapters, self.log = -1, takes_adapters, []

    def sync(self, model: Any, version: int) -> None:
        self.version = version
        self.log.append(("sync", logits(model)))

    def wake(self) -> None:
        self.log.append(("wake", None))

    def sleep(self) -> None:
        self.log.append(("sleep", None))


@pytest.mark.parametrize("takes_adapters", [True, False])
def test_an_engine_with_its_own_copy_gets_each_version_once(actor, takes_adapters):
    engine: Any = Remote(takes_adapters)
    expected = logits(actor.model)
    for version in (0, 0, 1):
        with serving(engine, actor, version):
            pass
    assert [name for name, _ in engine.log] == ["wake", "sync", "sleep", "wake", "sleep", "wake", "sync", "sleep"]
    assert all(torch.allclose(seen, expected, atol=1e-5) for name, seen in engine.log if name == "sync")


def test_it_sleeps_after_an_error_too(actor):
    engine: Any = Remote(True)
    with pytest.raises(KeyError), serving(engine, actor, 0):
        raise KeyError
    assert engine.log[-1][0] == "sleep"


@pytest.fixture
def vllm_config() -> Callable[..., Config]:
    return lambda *overrides: load(["engine=vllm", *overrides])


def test_without_vllm_the_message_says_what_to_install(vllm_config, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match="engine=vllm needs vLLM"):
        make_engine(vllm_config(), tiny_model(), tiny_tokenizer())
