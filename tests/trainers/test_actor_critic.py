"""Log-probs, values and reference of ActorCritic against direct forward passes on a tiny model."""

from __future__ import annotations

import copy
from contextlib import nullcontext

import numpy as np
import pytest
import torch

from ghar.llm.engine import Request
from ghar.llm.hf import HFEngine
from ghar.trainers.rl.actor_critic import ActorCritic
from ghar.trainers.rl.fast.rows import allowed_ids, collate, micro_batches
from ghar.trainers.rl.trajectory import Row
from tests.trainers.tiny import for_two, make_row, perturb, tiny_model, tiny_tokenizer

BUDGET = 96


def rows(count: int = 7, seed: int = 0) -> list[Row]:
    """Free replies of both agents, and every third one restricted to three choices."""
    rng = np.random.default_rng(seed)
    choices = ((5, 6), (5, 9), (11, 12))
    made = []
    for i in range(count):
        prompt = rng.integers(1, 64, rng.integers(3, 20))
        restricted = i % 3 == 2
        reply = np.array(choices[i % 2]) if restricted else rng.integers(1, 64, rng.integers(1, 6))
        made.append(make_row(np.concatenate([prompt, reply]), len(prompt), i % 2, choices if restricted else ()))
    return made


def direct_logp(model: torch.nn.Module, row: Row, temperature: float = 1.0) -> torch.Tensor:
    """One unpadded forward pass, one token at a time, restriction by enumeration of the choices."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor(row.tokens)[None]).logits[0].double() / temperature
    found = []
    reply = [int(t) for t in row.tokens[row.prompt :]]
    for n, token in enumerate(reply):
        line = logits[row.prompt + n - 1]
        if row.choice_ids:
            ids = sorted({c[n] for c in row.choice_ids if list(c[:n]) == reply[:n]})
            found.append(line[token] - line[ids].logsumexp(0))
        else:
            found.append(line[token] - line.logsumexp(0))
    return torch.stack(found)


@pytest.mark.parametrize("finetune", ["lora", "full"])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_logp_equals_a_direct_forward_pass(finetune, temperature):
    actor = perturb(ActorCritic(tiny_model(), for_two(finetune=finetune, rank=4, temperature=temperature)))
    batch = rows()
    expected = torch.cat([direct_logp(actor.model, row, temperature) for row in batch])
    scores = actor.evaluate(batch, BUDGET)
    assert torch.allclose(scores.logp.double(), expected, atol=1e-5)
    assert torch.isfinite(scores.entropy).all() and (scores.entropy >= -1e-6).all()
    assert scores.values.shape == scores.logp.shape and scores.values.abs().max() > 0


def test_restricted_reply_has_the_probability_of_its_choice():
    actor = perturb(ActorCritic(tiny_model(), for_two(rank=4)))
    choices = ((5, 6), (5, 9), (11, 12))
    prompt = np.array([3, 1, 4])
    every = [make_row(np.concatenate([prompt, c]), 3, 0, choices) for c in choices]
    logp = actor.evaluate(every, BUDGET).logp.reshape(3, 2)
    assert logp.sum(1).exp().sum() == pytest.approx(1.0, abs=1e-5)
    assert logp[2, 1] == pytest.approx(0.0, abs=1e-6)  # only one way to go on
    assert actor.evaluate(every, BUDGET).entropy[5] == pytest.approx(0.0, abs=1e-6)


def test_reply_outside_its_choices_is_an_error():
    row = make_row([1, 2, 7], 2, 0, ((5,), (6,)))
    with pytest.raises(ValueError, match="allowed were"):
        allowed_ids(row)


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.8])
def test_behaviour_logp_of_the_engine_equals_the_trainers(merged, temperature):
    actor = perturb(ActorCritic(tiny_model(), for_two(rank=4, temperature=temperature)))
    requests = [
        Request("w3 w4 w5", 6, seed=1, temperature=temperature),
        Request("w9", 4, seed=2, temperature=temperature),
        Request("w7 w8 w2 w3", 4, ("w5 w6", "w5 w9", "w11"), 3, temperature),
        Request("w6 w6", 4, ("w5", "w5 w9"), 4, temperature),  # one choice begins the other: the end token decides
    ]
    with actor.merged() if merged else nullcontext(actor.model) as model:
        replies = HFEngine(model, tiny_tokenizer(), max_batch=3).generate(requests)
    done = [make_row(r.prompt_ids + r.token_ids, len(r.prompt_ids), 0, r.choice_ids) for r in replies]
    sampled = torch.tensor([p for r in replies for p in r.logprobs])
    assert torch.allclose(actor.evaluate(done, BUDGET).logp, sampled, atol=1e-5)


@pytest.mark.parametrize("finetune", ["lora", "full"])
@pytest.mark.parametrize("critic", ["head", "own"])
def test_reference_stays_the_base(finetune, critic):
    base = tiny_model()
    config = for_two(finetune=finetune, critic=critic, rank=4)
    original = copy.deepcopy(base)
    batch = rows()
    expected = torch.cat([direct_logp(original, row) for row in batch])
    actor = ActorCritic(base, config)
    assert torch.allclose(actor.evaluate(batch, BUDGET).logp.double(), expected, atol=1e-5)
    perturb(actor)
    assert not torch.allclose(actor.evaluate(batch, BUDGET).logp.double(), expected, atol=1e-2)
    assert torch.allclose(actor.reference_logp(batch, BUDGET).double(), expected, atol=1e-5)
    assert all(p.requires_grad for p in actor.trainable_parameters())


def test_value_only_equals_evaluate():
    actor = perturb(ActorCritic(tiny_model(), for_two(rank=4)))
    batch = rows()
    assert torch.allclose(actor.value_only(batch, BUDGET), actor.evaluate(batch, BUDGET).values, atol=1e-6)


def test_result_does_not_depend_on_the_token_budget():
    actor = perturb(ActorCritic(tiny_model(), for_two(rank=4)))
    batch = rows(11)
    small, large = actor.evaluate(batch, 1), actor.evaluate(batch, 10_000)
    for name in ("logp", "values", "entropy"):
        assert torch.allclose(getattr(small, name), getattr(large, name), atol=1e-5)


@pytest.mark.parametrize("detach", [True, False])
def test_detach_keeps_the_value_loss_out_of_the_trunk(detach):
    actor = perturb(ActorCritic(tiny_model(), for_two(rank=4, detach=detach)))
    actor.score(rows()).values.square().sum().backward()
    trunk = [p.grad for n, p in actor.named_parameters() if "lora" in n and p.grad is not None]
    assert bool(trunk) is not detach


def test_merged_samples_from_the_same_policy_and_restores_the_base_exactly():
    actor = perturb(ActorCritic(tiny_model(), for_two(rank=4)))
    before = {n: p.detach().clone() for n, p in actor.named_parameters()}
    batch = rows()
    expected = actor.evaluate(batch, BUDGET).logp
    with actor.merged() as model:
        merged = torch.cat([direct_logp(model, row) for row in batch])
    assert torch.allclose(merged.float(), expected, atol=1e-5)
    assert all(torch.equal(p, before[n]) for n, p in actor.named_parameters())
    assert torch.allclose(actor.evaluate(batch, BUDGET).logp, expected, atol=0)


@pytest.mark.parametrize("finetune, chunk", [("lora", "FROZEN_CHUNK"), ("full", "CHUNK")])
def test_long_batches_are_scored_in_chunks_with_the_same_gradients(monkeypatch, finetune, chunk):
    actor = perturb(ActorCritic(tiny_model(), for_two(finetune, rank=4)))

    def gradients() -> list[torch.Tensor]:
        actor.zero_grad()
        scores = actor.score(rows())
        (scores.logp.sum() + 0.1 * scores.entropy.sum()).backward()
        return [p.grad.clone() for p in actor.trainable_parameters() if p.grad is not None]

    whole = gradients()
    monkeypatch.setattr(f"ghar.trainers.rl.fast.head.{chunk}", 4)
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(whole, gradients(), strict=True))
    assert all(torch.isfinite(g).all() for g in whole)


def test_state_travels_to_a_second_actor_and_other_shapes_are_refused():
    actor = perturb(ActorCritic(tiny_model(), for_two(rank=4)))
    state = {name: value.clone() for name, value in actor.trainable_state().items()}
    other = ActorCritic(tiny_model(), for_two(rank=4))
    other.load_trainable_state(state)
    assert torch.equal(other.evaluate(rows(), BUDGET).logp, actor.evaluate(rows(), BUDGET).logp)
    with pytest.raises(ValueError, match="another model"):
        ActorCritic(tiny_model(), for_two(rank=8)).load_trainable_state(state)


def test_same_seed_same_adapter_whatever_the_global_generator_did():
    first = ActorCritic(tiny_model(), for_two(rank=4, seed=3))
    base = tiny_model()
    torch.manual_seed(99)
    second = ActorCritic(base, for_two(rank=4, seed=3))
    for a, b in zip(first.trainable_parameters(), second.trainable_parameters(), strict=True):
        assert torch.equal(a, b)


def test_actor_never_leaves_eval_mode():
    actor = ActorCritic(tiny_model(), for_two(rank=4))
    actor.train()
    assert not any(module.training for module in actor.modules())


def test_micro_batches_cover_every_row_within_budget():
    lengths = [int(n) for n in np.random.default_rng(0).integers(1, 50, 200)]
    groups = micro_batches(lengths, 120)
    assert sorted(i for g in groups for i in g) == list(range(200))
    assert all(len(g) * max(lengths[i] for i in g) <= 120 or len(g) == 1 for g in groups)
    assert micro_batches([500, 1], 120) == [[0], [1]]
    assert micro_batches([], 120) == []


def test_rows_without_prompt_are_refused():
    with pytest.raises(ValueError, match="no prompt"):
        collate([make_row([1, 2], 0)], torch.device("cpu"))
