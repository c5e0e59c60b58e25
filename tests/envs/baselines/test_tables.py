"""The other baselines: what they read, that they learn, that they are the same each time and see no test label."""

from __future__ import annotations

import math
import pickle
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier

from ghar.data.tasks.splits import Splits
from ghar.envs.baselines.attention import Retain, Transformer, fit_retain, fit_transformer
from ghar.envs.baselines.features import TrainingData, counts, labels_of, likelihood, rhythm, vocabulary
from ghar.envs.baselines.fitted import EVERY, FITS, FittedBaseline
from ghar.envs.baselines.gru import Network, numbered
from ghar.envs.baselines.tables import NearestSamples, _dense, fit_boosting, fit_usual
from tests.envs.baselines.conftest import GRADES, known_of, lengths_of, sample, world

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def known(severity: np.ndarray) -> TrainingData:
    known = known_of(severity)
    every = [*known.train, *known.valid, *world(200, 0.1, 50_000, severity)]
    return replace(known, lengths=lambda: lengths_of(every))


def test_counts_are_of_visits_and_only_codes_of_training_samples_have_columns():
    samples = [sample(1, [["a", "b"], ["a"]], 0), sample(2, [["b"]], 1)]
    place = vocabulary(samples)
    assert place == {"a": 0, "b": 1} and vocabulary(samples, most=1) == {"a": 0}
    asked = [sample(3, [["b", "new"], ["b"], ["a"]], 0)]
    assert counts(asked, place, "all").toarray().tolist() == [[1, 2]]
    assert counts(asked, place, "newest").toarray().tolist() == [[1, 0]]
    assert rhythm(asked).tolist() == [[3, 10]] and math.isnan(rhythm(samples[1:])[0, 1])


def test_neighbours_vote_by_likeness():
    near, far = sample(1, [["a", "b"]], 0), sample(2, [["c", "d"]], 1)
    known = TrainingData([near, far], [near], 2, 0)
    codes = counts(known.train, vocabulary(known.train), "newest")
    memory = NearestSamples(vocabulary(known.train), "newest", codes, known.labels, fit_usual(known).shares, 2, {})
    asked = sample(3, [["a", "c", "d", "new"]], 0)  # 1 of 5 codes with the first, 2 of 4 with the second
    np.testing.assert_allclose(memory([asked]), [[(0.2 + 0.25) / 1.2, (0.5 + 0.25) / 1.2]])


@pytest.mark.parametrize("name", FITS)
def test_it_learns_and_is_the_same_each_time(name: str, known: TrainingData, severity: np.ndarray):
    test = world(200, 0.1, 50_000, severity)
    model, again = FITS[name](known), FITS[name](known)
    shares = model(test)
    assert shares.shape == (200, GRADES) and (shares >= 0).all()
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-6)
    np.testing.assert_array_equal(shares, again(test))
    np.testing.assert_allclose(model(test[:1]), shares[:1], rtol=1e-5)
    usual = fit_usual(known)(test)
    right, of_usual = ((found.argmax(axis=1) == labels_of(test)).mean() for found in (shares, usual))
    assert name == "usual" or right > of_usual + 0.1, f"{name}: {right} beside {of_usual}"
    assert pickle.loads(pickle.dumps(model))(test[:3]).tolist() == model(test[:3]).tolist()


def test_test_labels_change_nothing(known: TrainingData, severity: np.ndarray):
    test = world(20, 0.1, 50_000, severity)
    wrong = [replace(one, label=(one.label + 1) % GRADES) for one in test]
    told = []
    for part in (test, wrong):
        fitted = FittedBaseline(known, Splits(tuple(known.train), tuple(known.valid), tuple(part)))
        told.append([fitted.predict(one, "memory").probabilities for one in part])
    assert told[0] == told[1]


def test_nothing_is_fitted_before_it_is_asked_and_then_once(known: TrainingData, monkeypatch: pytest.MonkeyPatch):
    fits: list[str] = []
    monkeypatch.setitem(EVERY, "usual", lambda known: fits.append("usual") or fit_usual(known))  # type: ignore[index]
    fitted = FittedBaseline(known, Splits(tuple(known.train), tuple(known.valid), ()))
    assert not fits
    for one in known.valid[:3]:
        fitted.predict(one, "usual")
    assert fits == ["usual"]
    stranger = sample(1, [["c1"]], 0)
    assert fitted.predict(stranger, "usual").probabilities == fitted.predict(known.train[0], "usual").probabilities


@pytest.mark.parametrize("name", FITS)
def test_one_label_in_training_is_then_always_the_answer(name: str):
    train = [sample(i, [["a"]], 1) for i in range(4)]
    known = TrainingData(train, [sample(9, [["a"]], 0)], 3, 0)
    fitted = FittedBaseline(known, Splits(tuple(train), tuple(known.valid), ()))
    found = fitted.predict(known.valid[0], name)
    assert found.label == 1 and found.probabilities == (0, 1, 0)


def test_a_validation_label_that_training_has_not_stops_nothing(severity: np.ndarray):
    known = known_of(severity, count=80)
    known = replace(known, train=[one for one in known.train if one.label != 2])
    for name, fit in FITS.items():
        shares = fit(known)(known.valid)
        assert shares.shape == (20, GRADES) and np.isfinite(shares).all(), name
    assert (fit_boosting(known)(known.valid)[:, 2] == 0).all()


def test_boosting_keeps_the_rounds_of_the_lowest_validation_loss(severity: np.ndarray):
    known = known_of(severity, count=80)
    model = fit_boosting(known)
    more = replace(known.settings, rounds=model.fitted.n_iter_ + known.settings.patience)
    leaf, rows = model.about["leaf"], _dense(known.valid, model.place, None)
    longer = HistGradientBoostingClassifier(
        max_iter=more.rounds, min_samples_leaf=leaf, random_state=known.seed, early_stopping=False
    ).fit(_dense(known.train, model.place, None), known.labels)
    truth = labels_of(known.valid)
    rounds = [likelihood(shares, truth) for shares in longer.staged_predict_proba(rows)]
    reached = likelihood(model(known.valid), truth)
    assert reached == pytest.approx(max(rounds)) and reached > rounds[-1]
    assert model.about["rounds"] == 1 + int(np.argmax(rounds))


def test_the_gru_reads_the_newest_visits_and_empty_ones():
    asked = [sample(1, [["a"], [], ["new", "b"]], 0), sample(2, [[]], 0)]
    assert numbered(asked, {"a": 0, "b": 1}, 2) == [[[], [1]], [[]]]
    network = Network(2, 4, 3).eval()
    both = network(numbered(asked, {"a": 0, "b": 1}, 9))
    np.testing.assert_allclose(both[1:].detach(), network([[[]]]).detach(), rtol=1e-5)


@pytest.mark.parametrize("make", [Network, Retain, Transformer])
def test_a_network_over_visits_does_not_see_its_neighbours_padding(make: type) -> None:
    torch.manual_seed(0)
    network = make(3, 8, 4).eval()
    long, short = [[0], [1, 2], [2]], [[1]]
    both = network([long, short]).detach()
    np.testing.assert_allclose(both[1], network([short]).detach()[0], rtol=1e-4, atol=1e-6)
    assert not np.allclose(both[0], network([[[0], [1, 2], [1]]]).detach()[0])


def test_retain_is_its_equations() -> None:
    """Choi et al., step 2 to 5, one visit after the other."""
    torch.manual_seed(1)
    network, visits = Retain(3, 4, 2).eval(), [[0], [1, 2], []]
    vectors = [sum((network.vectors.codes.weight[c] for c in v), torch.zeros(4)).relu() for v in reversed(visits)]
    rows = torch.stack(vectors)[None]
    g, h = network.over_visits(rows)[0][0], network.over_parts(rows)[0][0]
    alpha = torch.softmax(torch.stack([network.visit(one)[0] for one in g]), dim=0)
    context = sum(alpha[i] * torch.tanh(network.part(h[i])) * vectors[i] for i in range(3))
    np.testing.assert_allclose(network([visits])[0].detach(), network.label(context).detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("fit", [fit_retain, fit_transformer])
def test_attention_learns_what_the_worst_code_decides(known: TrainingData, fit: Any) -> None:
    found = fit(known)(known.valid)
    usual = fit_usual(known)(known.valid)
    truth = labels_of(known.valid)
    assert (found.argmax(axis=1) == truth).mean() > (usual.argmax(axis=1) == truth).mean() + 0.1
    np.testing.assert_array_equal(found, fit(known)(known.valid))
