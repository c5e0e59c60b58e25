"""The networks against what their papers say, written out slowly; padding and hidden values change nothing."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from ghar.envs.graphwalker.encoders.adacare import mean_so_far
from ghar.envs.graphwalker.encoders.batches import fit_scale, make_batch
from ghar.envs.graphwalker.encoders.concare import ConCare, decorrelation
from ghar.envs.graphwalker.encoders.smart import EMA_START, Pretraining, Smart, draw_hidden, hide, sinusoids
from ghar.envs.graphwalker.encoders.train import MODELS
from ghar.errors import BadInput
from tests.envs.graphwalker.encoders.series import changed, sample, series


def model_of(name: str) -> nn.Module:
    torch.manual_seed(3)
    model = MODELS[name](4, 2, 16).eval()
    with torch.no_grad():  # biases that start at zero would hide that they are read
        for weight in model.parameters():
            weight.add_(0.05 * torch.randn_like(weight))
    return model


@pytest.mark.parametrize("name", list(MODELS))
def test_padding_and_company_change_nothing(name: str) -> None:
    samples = series(0, 8)
    scale, model = fit_scale(samples), model_of(name)
    together = model(make_batch(samples, scale))
    for i, one in enumerate(samples):
        alone = model(make_batch([one], scale))
        assert torch.allclose(alone.embedding[0], together.embedding[i], atol=1e-5)
        assert torch.allclose(alone.logits[0], together.logits[i], atol=1e-5)


@pytest.mark.parametrize("name", list(MODELS))
def test_nothing_is_left_on_the_cpu(name: str) -> None:
    """torch refuses to mix a device without numbers ("meta") with the CPU, as it would a GPU."""
    samples, away = series(0, 6), torch.device("meta")
    batch, model = make_batch(samples, fit_scale(samples)).to(away), model_of(name).to(away)
    said = model(batch)
    assert said.logits.device == said.embedding.device == away and said.logits.shape == (6, 2)
    if isinstance(model, Smart):
        assert Pretraining(model.encoder, 16).to(away).loss(batch, draw_hidden(batch)).device == away


@pytest.mark.parametrize("name", list(MODELS))
def test_every_measured_value_counts(name: str) -> None:
    [one] = series(1, 1)
    scale, model = fit_scale(series(0, 30)), model_of(name)
    before = model(make_batch([one], scale)).embedding
    for step, feature in np.argwhere(one.history.observed):
        values = one.history.values.copy()
        values[step, feature] += 1.0
        assert not torch.allclose(model(make_batch([changed(one, values=values)], scale)).embedding, before, atol=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_a_hidden_value_does_not_reach_its_own_prediction(seed: int) -> None:
    """Nor do its copies, which LOCF has put into later steps."""
    samples, rng = series(seed, 6), np.random.default_rng(seed)
    scale = fit_scale(samples)
    torch.manual_seed(seed)
    stage = Pretraining(Smart(4, 2, 16).encoder, 16).eval()
    batch = make_batch(samples, scale)
    hidden = draw_hidden(batch)
    hidden_apart = []
    for i, one in enumerate(samples):
        shown, own = one.history, hidden[i, : len(one.history.hours)].numpy()
        raw = np.where(shown.observed & own, shown.values + rng.normal(3, 1, shown.values.shape), shown.values)
        hidden_apart.append(sample(i, raw.astype(np.float32), shown.observed))
    other = make_batch(hidden_apart, scale)
    assert not torch.equal(batch.values, other.values) and torch.equal(batch.observed, other.observed)
    guess, again = (stage.predictor(stage.encoder(hide(b, hidden))) for b in (batch, other))
    assert torch.equal(guess, again)
    assert not torch.equal(stage.target(batch), stage.target(other))  # the target does see it
    assert stage.loss(batch, hidden) != stage.loss(other, hidden)


def test_the_loss_of_pretraining_is_over_hidden_measured_cells_alone() -> None:
    samples = series(2, 3)
    batch = make_batch(samples, fit_scale(samples))
    stage = Pretraining(Smart(4, 2, 16).encoder, 16).eval()
    hidden = draw_hidden(batch)
    target, guess = stage.target(batch)[:, :, 1:], stage.predictor(stage.encoder(hide(batch, hidden))[:, :, 1:])
    errors = []
    for b, t, f in np.argwhere((hidden & batch.observed).numpy()):
        gap = (guess[b, f, t] - target[b, f, t]).abs()
        errors.append(torch.where(gap < 1, gap**2 / 2, gap - 0.5).mean().item())
    assert stage.loss(batch, hidden).item() == pytest.approx(np.mean(errors), rel=1e-5)
    assert stage.loss(batch, torch.zeros_like(hidden)).item() == 0


def test_the_copy_follows_and_stands_still_at_the_end() -> None:
    stage = Pretraining(Smart(4, 2, 16).encoder, 16)
    with torch.no_grad():
        stage.encoder.cls.add_(1.0)
    start = stage.target.cls.clone()
    stage.follow(0.0)
    assert torch.allclose(stage.target.cls, start + (1 - EMA_START), atol=1e-6)
    moved = stage.target.cls.clone()
    stage.follow(1.0)
    assert torch.equal(stage.target.cls, moved)


def test_each_channel_of_concare_is_a_gru() -> None:
    samples = series(4, 5)
    batch = make_batch(samples, fit_scale(samples))
    channels = model_of("concare").channels
    states = channels(batch)
    cells = torch.stack([batch.filled, batch.observed.float()], dim=-1)
    for f in range(4):
        gru = nn.GRU(2, 16, batch_first=True)
        with torch.no_grad():
            gru.weight_ih_l0.copy_(channels.from_input[f].T)
            gru.weight_hh_l0.copy_(channels.from_state[f].T)
            gru.bias_ih_l0.copy_(channels.bias_input[f])
            gru.bias_hh_l0.copy_(channels.bias_state[f])
        assert torch.allclose(gru(cells[:, :, f])[0], states[:, :, f], atol=1e-5)


def test_concares_attention_over_time_fades_with_the_hours() -> None:
    samples = series(5, 4)
    batch, model = make_batch(samples, fit_scale(samples)), model_of("concare")
    assert isinstance(model, ConCare)
    states, context = model.channels(batch), model.contexts(batch)
    for b, one in enumerate(samples):
        for f in range(4):
            last = len(one.history.hours) - 1
            query = states[b, last, f] @ model.query[f]
            scores = []
            for t in range(len(one.history.hours)):
                dot = (query @ (states[b, t, f] @ model.key[f])).item() / math.sqrt(16)
                beta = math.log1p(math.exp(model.fading[f].item()))
                passed = float(one.history.hours[last] - one.history.hours[t])
                share = 1 / (1 + math.exp(-dot))
                scores.append(math.tanh(dot / (beta * math.log(math.e + (1 - share) * passed) + 1e-6)))
            weights = np.exp(scores) / np.exp(scores).sum()
            expected = sum(w * states[b, t, f].detach().numpy() for t, w in enumerate(weights))
            assert np.allclose(context[b, f].detach().numpy(), expected, atol=1e-5)


def test_decorrelation_and_mean_so_far_as_written() -> None:
    torch.manual_seed(0)
    context = torch.randn(6, 3, 4)
    expected = []
    for f in range(3):
        covariance = np.cov(context[:, f].numpy().T, bias=True)
        expected.append(((covariance**2).sum() - (np.diag(covariance) ** 2).sum()) / 2)
    assert decorrelation(context).item() == pytest.approx(np.mean(expected), rel=1e-5)
    x = torch.randn(2, 5, 3)
    assert torch.allclose(mean_so_far(x)[:, 3], x[:, :4].mean(1), atol=1e-6)
    assert torch.allclose(sinusoids(torch.tensor([0.0]), 6), torch.tensor([[0.0, 0, 0, 1, 1, 1]]))


def test_the_scale_is_that_of_measured_values() -> None:
    samples = series(6, 40)
    scale = fit_scale(samples)
    for f in range(4):
        cells = []
        for one in samples:
            cells += [one.history.values[t, f] for t in range(len(one.history.hours)) if one.history.observed[t, f]]
        assert scale.mean[f] == pytest.approx(np.mean(cells), rel=1e-5)
        assert scale.deviation[f] == pytest.approx(np.std(cells), rel=1e-4)


def test_what_was_carried_into_the_first_step_counts_once() -> None:
    one = sample(0, np.array([[5.0], [6.0]], np.float32), np.array([[True], [False]]))
    later = changed(one, observed=np.array([[False], [False]]))
    scale = fit_scale([one, later])
    batch = make_batch([later], scale)
    assert batch.observed[0, :, 0].tolist() == [True, False]


def test_a_feature_that_nobody_has_is_no_obstacle() -> None:
    samples = series(7, 6)
    for one in samples:
        one.history.values[:, 2], one.history.observed[:, 2] = np.nan, False
    scale = fit_scale(samples)
    assert (scale.mean[2], scale.deviation[2]) == (0, 1)
    for name in MODELS:
        assert model_of(name)(make_batch(samples, scale)).logits.isfinite().all()


def test_values_that_cannot_be_are_refused() -> None:
    samples = series(8, 5)
    scale = fit_scale(samples)
    step, feature = np.argwhere(samples[3].history.observed)[0]
    for value in (np.nan, np.inf):
        values = samples[3].history.values.copy()
        values[step, feature] = value
        with pytest.raises(BadInput, match=f"s3 says that VITAL/feature {feature} was measured in step {step}"):
            make_batch([*samples[:3], changed(samples[3], values=values)], scale)
    with pytest.raises(BadInput, match="other features"):
        make_batch([changed(samples[0], features=("VITAL/other",))], scale)
    with pytest.raises(BadInput, match="no time step"):
        make_batch([changed(samples[0], hours=np.empty(0))], scale)
