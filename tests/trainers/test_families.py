"""The trainer's log-probabilities against the model's own logits and the engine's, for ten public families."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ghar.llm.engine import Request
from ghar.llm.hf import HFEngine
from ghar.llm.tokens import encode_prompt
from ghar.trainers.rl.actor_critic import ActorCritic, ActorCriticConfig
from ghar.trainers.rl.fast.rows import collate
from tests.llm.families import FAMILIES, model_of, tokenizer_of
from tests.trainers.tiny import make_row

TEMPERATURES = (1.0, 0.7)


def made(name: str) -> tuple[Any, Any]:
    tokenizer = tokenizer_of(FAMILIES[name])
    return model_of(FAMILIES[name], tokenizer), tokenizer


def of_logits(model: Any, row: Any, temperature: float) -> torch.Tensor:
    """log p of a row's completion by the model's own logits."""
    ids = torch.tensor(row.tokens)[None]
    logits = model(input_ids=ids).logits[0, row.prompt - 1 : -1].float() / temperature
    return logits.log_softmax(-1).gather(1, ids[0, row.prompt :, None]).squeeze(1)


def rows_of(tokenizer: Any) -> list[Any]:
    prompt = encode_prompt(tokenizer, "Is it so?")
    return [make_row([*prompt, *(7, 90, 33, 4, 200)[:n]], len(prompt)) for n in (5, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("finetune", ["lora", "full"])
@pytest.mark.parametrize("name", FAMILIES)
def test_log_probs_and_gradients_are_those_of_the_models_own_logits(name: str, finetune: Any) -> None:
    for temperature in TEMPERATURES:
        model, tokenizer = made(name)
        rows = rows_of(tokenizer)
        cfg = ActorCriticConfig(finetune=finetune, rank=2, temperature=temperature, reference=False)
        actor = ActorCritic(model, cfg)
        for parameter in actor.trainable_parameters():
            parameter.data += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        found = actor.score(rows).logp
        expected = torch.cat([of_logits(actor.model, row, temperature) for row in rows])
        assert torch.allclose(found, expected, atol=1e-5)
        wanted = [p for p in actor.trainable_parameters() if p.dim() > 1 and p.shape[0] > 1][:6]
        ours = torch.autograd.grad(found.square().sum(), wanted)
        theirs = torch.autograd.grad(expected.square().sum(), wanted)
        for a, b in zip(ours, theirs, strict=True):
            assert float((a - b).norm() / b.norm().clamp(min=1e-6)) < 1e-4


@pytest.mark.parametrize("name", FAMILIES)
def test_the_head_of_a_frozen_model_scores_as_autograd_does(name: str) -> None:
    """The quick path of `rl.fast.head` against its slow one: log-prob, entropy and the gradients of both."""
    model, tokenizer = made(name)
    batch = collate(rows_of(tokenizer), torch.device("cpu"))
    actor = ActorCritic(model, ActorCriticConfig(finetune="lora", rank=2, temperature=0.7))
    states = actor._hidden(actor.policy, batch).detach()
    found = []
    for frozen in (True, False):
        model.get_output_embeddings().requires_grad_(not frozen)
        hidden = states.clone().requires_grad_()
        logp, entropy = actor._token_scores(actor.policy, hidden, batch, entropy_gradient=True)
        found.append((logp, entropy, *torch.autograd.grad(logp.sum() + 0.3 * entropy.square().sum(), hidden)))
    for quick, slow in zip(*found, strict=True):
        assert float((quick - slow).detach().norm() / slow.detach().norm()) < 2e-5  # float32


@pytest.mark.parametrize("name", FAMILIES)
def test_what_the_engine_samples_has_the_trainers_probability(name: str) -> None:
    model, tokenizer = made(name)
    actor = ActorCritic(model, ActorCriticConfig(finetune="full", reference=False))
    requests = [Request(f"Is it so, {i}?", 12, seed=i) for i in range(3)] + [Request("Which?", 4, ("10", "1", "no"))]
    for reply in HFEngine(model, tokenizer).generate(requests):
        row = make_row([*reply.prompt_ids, *reply.token_ids], len(reply.prompt_ids), choice_ids=reply.choice_ids)
        with torch.no_grad():
            logp = actor.score([row]).logp
        assert torch.allclose(logp, torch.tensor(reply.logprobs), atol=1e-5)
