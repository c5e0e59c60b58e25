"""Scores of tokens against autograd on whole logits: values and gradients, frozen head and head in training."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ghar.llm.logits import IDENTITY, LogitTransform
from ghar.trainers.rl.fast.head import token_scores


def direct(head, hidden, target, allowed, restricted, temperature, transform=IDENTITY):
    """The definition, line by line, in float64."""
    logp, entropy = [], []
    for i in range(len(hidden)):
        logits = transform.apply(head.weight.double() @ hidden[i].double()) / temperature
        ids = allowed[i].unique() if allowed is not None and restricted[i] else torch.arange(len(logits))
        chosen = logits[ids].log_softmax(-1)
        logp.append(chosen[(ids == target[i]).nonzero().item()])
        entropy.append(-(chosen.exp() * chosen).sum())
    return torch.stack(logp), torch.stack(entropy)


def a_case(seed: int, positions: int, vocab: int, restricted: bool):
    """Head, states, targets, limits and weights of the outputs; every target is allowed."""
    generator = torch.Generator().manual_seed(seed)
    head = torch.nn.Linear(6, vocab, bias=False)
    head.weight.data = torch.randn(vocab, 6, generator=generator)
    hidden = torch.randn(positions, 6, generator=generator)
    target = torch.randint(vocab, (positions,), generator=generator)
    limited = torch.rand(positions, generator=generator) < 0.5
    allowed = torch.randint(vocab, (positions, 3), generator=generator)
    allowed[:, 0] = target
    above = torch.randn(2, positions, generator=generator)
    return head, hidden, target, allowed if restricted else None, limited & restricted, above


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    positions=st.integers(1, 9),
    vocab=st.integers(2, 12),
    restricted=st.booleans(),
    temperature=st.sampled_from([1.0, 0.7]),
    entropy=st.booleans(),
    frozen=st.booleans(),
    transform=st.sampled_from([IDENTITY, LogitTransform(0.5), LogitTransform(1.0, 3.0), LogitTransform(2.0, 1.5)]),
)
def test_values_and_gradients_are_those_of_the_definition(
    seed, positions, vocab, restricted, temperature, entropy, frozen, transform
):
    head, hidden, target, allowed, limited, above = a_case(seed, positions, vocab, restricted)
    head.requires_grad_(not frozen)

    def gradients(outputs, state: Tensor) -> list[Tensor]:
        loss = (outputs[0] * above[0]).sum() + (outputs[1] * above[1]).sum() * (1.0 if entropy else 0.0)
        wanted = [state] if frozen else [state, head.weight]
        return list(torch.autograd.grad(loss, wanted))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ghar.trainers.rl.fast.head.FROZEN_CHUNK", 4)
        patch.setattr("ghar.trainers.rl.fast.head.CHUNK", 4)
        a, b = hidden.clone().requires_grad_(), hidden.clone().requires_grad_()
        found = token_scores(head, a, target, allowed, limited, temperature, entropy, transform)
        expected = direct(head, b, target, allowed, limited, temperature, transform)
        for one, other in zip(found, expected, strict=True):
            assert torch.allclose(one.double(), other, atol=1e-5)
        for one, other in zip(gradients(found, a), gradients(expected, b), strict=True):
            assert torch.allclose(one, other, atol=1e-4, rtol=1e-4)


def test_a_frozen_head_keeps_no_array_as_wide_as_the_vocabulary():
    head = torch.nn.Linear(4, 5000, bias=False).requires_grad_(False)
    hidden = torch.randn(300, 4, requires_grad=True)
    kept: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        token_scores(head, hidden, torch.zeros(300).long(), None, torch.zeros(300).bool(), 1.0, True)
    assert max(kept) < 5000


def test_without_gradients_the_head_may_be_in_training():
    head, hidden, target, allowed, limited, _ = a_case(0, 5, 7, True)
    with torch.no_grad():
        found = token_scores(head, hidden, target, allowed, limited, 1.0, False)
    assert all(torch.allclose(a.double(), b, atol=1e-5) for a, b in zip(
        found, direct(head, hidden, target, allowed, limited, 1.0), strict=True))  # fmt: skip
    assert not found[0].requires_grad
