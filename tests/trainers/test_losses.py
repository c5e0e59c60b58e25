"""Losses: equations, clipping, masks, and independence of how a batch is cut."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.trainers.rl.losses import (
    policy_loss,
    reference_kl,
    token_weights,
    truncated_importance,
    value_loss,
    weighted,
)

numbers = st.lists(
    st.tuples(st.floats(-3, 0), st.floats(-3, 0), st.floats(-2, 2), st.booleans()), min_size=1, max_size=12
)


def columns(rows: list[tuple]) -> list[torch.Tensor]:
    return [torch.tensor(c, dtype=torch.float64) for c in zip(*rows, strict=True)]


@settings(max_examples=60)
@given(numbers, st.floats(0.05, 0.5))
def test_policy_loss_is_equation_16(rows: list[tuple], clip: float) -> None:
    new, old, advantages, weights = columns(rows)
    loss, _ = policy_loss(new, old, advantages, weights, 10.0, clip)
    total = 0.0
    for n, o, a, w in rows:
        ratio = math.exp(n - o)
        total += w * min(ratio * a, min(max(ratio, 1 - clip), 1 + clip) * a)
    assert loss.item() == pytest.approx(-total / 10.0, abs=1e-9)


@settings(max_examples=60)
@given(numbers, st.floats(0.05, 0.5), st.floats(0.5, 4), st.randoms(use_true_random=False))
def test_truncated_importance_sampling_weighs_the_surrogate(rows: list[tuple], clip: float, cap: float, rnd) -> None:
    """min(π_old / μ, C) min(r A, clip(r) A) with r = π / π_old, token by token."""
    new, old, advantages, weights = columns(rows)
    behaviour = old + torch.tensor([rnd.uniform(-1, 1) for _ in rows], dtype=torch.float64)
    corrected = advantages * truncated_importance(old, behaviour, cap)
    loss, _ = policy_loss(new, old, corrected, weights, 10.0, clip)
    total = 0.0
    for n, o, b, a, w in zip(new.tolist(), old.tolist(), behaviour.tolist(), advantages.tolist(), weights, strict=True):
        ratio = math.exp(n - o)
        total += float(w) * min(math.exp(o - b), cap) * min(ratio * a, min(max(ratio, 1 - clip), 1 + clip) * a)
    assert loss.item() == pytest.approx(-total / 10.0, abs=1e-9)


def test_importance_weights_remove_the_bias_of_another_sampler() -> None:
    """Gradient of E_π[A] from samples of μ, below the cap: the weighted mean of A is the mean under π."""
    generator = torch.Generator().manual_seed(2)
    pi, mu = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.4, 0.35, 0.25])
    advantages = torch.tensor([1.0, -2.0, 3.0])
    drawn = torch.multinomial(mu, 200_000, replacement=True, generator=generator)
    weights = truncated_importance(pi.log()[drawn], mu.log()[drawn], 2.0)
    assert (weights * advantages[drawn]).mean().item() == pytest.approx((pi * advantages).sum().item(), abs=0.02)
    assert truncated_importance(torch.tensor([0.0]), torch.tensor([-9.0]), 2.0) == 2.0


@settings(max_examples=60)
@given(numbers, st.none() | st.floats(0.05, 0.5))
def test_value_loss_is_equation_17_and_its_clipped_form(rows: list[tuple], clip: float | None) -> None:
    values, old, targets, weights = columns(rows)
    loss = value_loss(values, old, targets, weights, 10.0, clip)
    total = 0.0
    for v, o, t, w in rows:
        near = v if clip is None else o + min(max(v - o, -clip), clip)
        total += w * max((v - t) ** 2, (near - t) ** 2)
    assert loss.item() == pytest.approx(total / 10.0, abs=1e-9)


@settings(max_examples=60)
@given(st.lists(st.lists(st.lists(st.floats(-3, 3), min_size=1, max_size=4), min_size=1, max_size=4), min_size=1))
def test_a_weighted_mean_is_the_mean_over_tokens_turns_or_sequences(episodes: list[list[list[float]]]) -> None:
    """Each is the mean of the means, taken one after the other."""

    def mean(x: list[float]) -> float:
        return math.fsum(x) / len(x)

    expected = {
        "token": mean([x for turns in episodes for turn in turns for x in turn]),
        "turn": mean([mean(turn) for turns in episodes for turn in turns]),
        "sequence": mean([mean([x for turn in turns for x in turn]) for turns in episodes]),
    }
    table = [(e, 10 * e + k, x) for e, turns in enumerate(episodes) for k, turn in enumerate(turns) for x in turn]
    sequence, turn, x = (torch.tensor(column) for column in zip(*table, strict=True))
    for aggregate, value in expected.items():
        weights = token_weights(turn, sequence, aggregate)  # type: ignore[arg-type]
        assert weighted(x, weights, weights.sum().item()).item() == pytest.approx(value, abs=1e-5)


@settings(max_examples=60)
@given(st.lists(st.lists(st.lists(st.tuples(st.floats(-3, 3), st.booleans()), min_size=1, max_size=4), min_size=1)))
def test_turns_and_sequences_are_shared_out_among_open_tokens(
    episodes: list[list[list[tuple[float, bool]]]],
) -> None:
    """Each is the mean over those that have an open token of the mean over these, taken one after the other."""

    def mean_of_means(groups: list[list[tuple[float, bool]]]) -> float:
        means = [[x for x, is_open in group if is_open] for group in groups]
        each = [math.fsum(own) / len(own) for own in means if own]
        return math.fsum(each) / len(each) if each else 0.0

    expected = {
        "turn": mean_of_means([turn for turns in episodes for turn in turns]),
        "sequence": mean_of_means([[token for turn in turns for token in turn] for turns in episodes]),
    }
    table = [(e, 100 * e + k, *token) for e, turns in enumerate(episodes) for k, t in enumerate(turns) for token in t]
    sequence, turn, x, is_open = (torch.tensor([row[i] for row in table]) for i in range(4))
    for aggregate, value in expected.items():
        weights = token_weights(turn.long(), sequence.long(), aggregate, is_open.bool())  # type: ignore[arg-type]
        total = weights.sum().item() or 1.0
        assert weighted(x, weights, total).item() == pytest.approx(value, abs=1e-5)


@settings(max_examples=40)
@given(numbers, st.integers(1, 5))
def test_micro_batches_add_up(rows: list[tuple], size: int) -> None:
    new, old, third, weights = columns(rows)
    count = max(weights.sum().item(), 1.0)

    def everything(part: slice) -> torch.Tensor:
        a, b, c, w = new[part], old[part], third[part], weights[part]
        loss, diagnostics = policy_loss(a, b, c, w, count, 0.2)
        value, kl = value_loss(a, b, c, w, count, 0.2), reference_kl(a, b, w, count)
        return torch.stack([loss, value, kl, weighted(c, w, count), *diagnostics.values()])

    parts = sum(everything(slice(i, i + size)) for i in range(0, len(rows), size))
    torch.testing.assert_close(parts, everything(slice(None)))


def test_gradients_do_not_depend_on_the_cut() -> None:
    torch.manual_seed(0)
    old, advantages, weights = torch.randn(20) - 2, torch.randn(20), (torch.rand(20) > 0.3).float()
    grads = []
    for size in (20, 7, 1):
        new = (old + 0.1).clone().requires_grad_()
        for i in range(0, 20, size):
            cut = slice(i, i + size)
            loss, _ = policy_loss(new[cut], old[cut], advantages[cut], weights[cut], weights.sum().item(), 0.2)
            (loss + value_loss(new[cut], old[cut], advantages[cut], weights[cut], 13.0, 0.2)).backward()
        grads.append(new.grad)
    torch.testing.assert_close(grads[0], grads[1])
    torch.testing.assert_close(grads[0], grads[2])


@pytest.mark.parametrize("junk", [float("nan"), float("inf"), -float("inf")])
def test_masked_entries_may_hold_anything(junk: float) -> None:
    weights = torch.tensor([1.0, 0.0, 1.0])
    clean = torch.tensor([-1.0, -1.0, -0.5])
    dirty = torch.tensor([-1.0, junk, -0.5])
    for x in (clean, dirty):
        x.requires_grad_()
        loss, diagnostics = policy_loss(x, x.detach() - 0.1, x.detach() + 1, weights, 2.0, 0.2)
        loss = loss + value_loss(x, x.detach() + 0.3, x.detach() * 2, weights, 2.0, 0.2)
        loss = loss + reference_kl(x, x.detach() + 0.2, weights, 2.0) + weighted(x, weights, 2.0)
        loss.backward()
        assert all(d.isfinite() for d in diagnostics.values()) and loss.isfinite()
    assert dirty.grad is not None and dirty.grad[1] == 0
    torch.testing.assert_close(dirty.grad, clean.grad)


def test_on_policy_gradient_is_advantage() -> None:
    new = torch.tensor([-1.0, -2.0], requires_grad=True)
    loss, diagnostics = policy_loss(new, new.detach(), torch.tensor([2.0, -1.0]), torch.ones(2), 2.0, 0.2)
    loss.backward()
    torch.testing.assert_close(new.grad, torch.tensor([-1.0, 0.5]))
    assert {name: value.item() for name, value in diagnostics.items()} == {
        "old_approx_kl": 0.0, "approx_kl": 0.0, "clipfrac": 0.0,
    }  # fmt: skip


def test_clipped_tokens_stop_pushing_but_can_come_back() -> None:
    new = torch.tensor([0.0, 0.0], requires_grad=True)
    old = torch.tensor([-1.0, -1.0])
    loss, diagnostics = policy_loss(new, old, torch.tensor([1.0, -1.0]), torch.ones(2), 2.0, 0.2)
    loss.backward()
    assert new.grad is not None and new.grad[0] == 0 and new.grad[1] > 0
    assert diagnostics["clipfrac"] == 1.0
    assert diagnostics["old_approx_kl"].item() == pytest.approx(-1.0)
    assert diagnostics["approx_kl"].item() == pytest.approx(math.e - 2.0)


def test_estimates_of_the_divergence() -> None:
    generator = torch.Generator().manual_seed(1)
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.3, 0.3, 0.4])
    drawn = torch.multinomial(p, 200_000, replacement=True, generator=generator)
    for estimator in ("k1", "k3"):  # k2's value is another
        got = reference_kl(p.log()[drawn], q.log()[drawn], torch.ones(len(drawn)), len(drawn), estimator)
        assert got.item() == pytest.approx((p * (p / q).log()).sum().item(), abs=0.01)
        assert reference_kl(p.log(), p.log(), torch.ones(3), 3.0, estimator) == 0.0


@settings(max_examples=40)
@given(st.lists(st.tuples(st.floats(-2, 2), st.floats(-2, 2)), min_size=2, max_size=6))
def test_expected_gradients_of_the_divergences_estimates(logits: list[tuple[float, float]]) -> None:
    """Over all samples of π exactly: k1 and k2 push as KL(π || π_ref) does, k3 as KL(π_ref || π)."""
    own, other = (torch.tensor(column, dtype=torch.float64) for column in zip(*logits, strict=True))
    own.requires_grad_()
    reference = other.log_softmax(0)

    def gradient(loss: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss, own)[0]

    logp = own.log_softmax(0)
    forward = gradient((logp.exp() * (logp - reference)).sum())
    backward = gradient((reference.exp() * (reference - own.log_softmax(0))).sum())
    for estimator, expected in (("k1", forward), ("k2", forward), ("k3", backward)):
        logp = own.log_softmax(0)  # weights: how often each outcome is sampled
        found = gradient(reference_kl(logp, reference, logp.detach().exp(), 1.0, estimator))  # type: ignore[arg-type]
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-7)
