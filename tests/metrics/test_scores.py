"""Scores equal scikit-learn's, their intervals cover the truth, and unreadable predictions are wrong."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from ghar.errors import BadInput
from ghar.metrics.scores import class_f1, classification, confusion_matrix
from tests.growth import TENFOLD, times_as_long

N = 4


@st.composite
def cases(draw, n_classes=N):
    n = draw(st.integers(1, 30))
    label = st.integers(0, n_classes - 1)
    labels = draw(st.lists(label, min_size=n, max_size=n))
    predictions = draw(st.lists(st.none() | label, min_size=n, max_size=n))
    # Coarse scores, so that ties are common.
    scores = (
        np.array(
            draw(st.lists(st.lists(st.integers(0, 5), min_size=n_classes, max_size=n_classes), min_size=n, max_size=n))
        )
        + 1.0
    )
    return labels, predictions, scores / scores.sum(axis=1, keepdims=True)


@settings(max_examples=40)
@given(cases())
def test_f1_of_each_class_equals_scikit_learn(case):
    labels, predictions, _ = case
    guess = [N if p is None else p for p in predictions]
    known = sorted({*labels, *guess} - {N})
    expected = sk.f1_score(labels, guess, labels=known, average=None, zero_division=0.0)  # pyright: ignore
    got = class_f1(labels, predictions, N, patients=None, resamples=20)
    assert sorted(got) == known
    for label, value in zip(known, np.atleast_1d(expected), strict=True):
        assert got[label].value == pytest.approx(value) and got[label].low <= got[label].high


@pytest.mark.slow
@settings(max_examples=40)
@given(cases())
def test_equals_scikit_learn(case):
    labels, predictions, scores = case
    got = classification(labels, predictions, N, scores, patients=None, resamples=50)
    guess = [N if p is None else p for p in predictions]
    assert got["accuracy"].value == pytest.approx(sk.accuracy_score(labels, guess))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert got["balanced_accuracy"].value == pytest.approx(sk.balanced_accuracy_score(labels, guess))
    known = sorted({*labels, *guess} - {N})
    expected = sk.f1_score(labels, guess, labels=known, average="macro", zero_division=0.0)  # pyright: ignore
    assert got["macro_f1"].value == pytest.approx(expected)
    assert np.array_equal(
        confusion_matrix(labels, predictions, N), sk.confusion_matrix(labels, guess, labels=range(N + 1))[:N]
    )
    ranked = [c for c in range(N) if 0 < labels.count(c) < len(labels)]
    if not ranked:
        assert "auroc" not in got and "auprc" not in got
        return
    truth = np.array(labels)
    assert got["auroc"].value == pytest.approx(np.mean([sk.roc_auc_score(truth == c, scores[:, c]) for c in ranked]))
    assert got["auprc"].value == pytest.approx(
        np.mean([sk.average_precision_score(truth == c, scores[:, c]) for c in ranked])
    )


@pytest.mark.slow
@settings(max_examples=50)
@given(cases(n_classes=2))
def test_two_classes(case):
    labels, predictions, scores = case
    got = classification(labels, predictions, 2, scores, patients=None, resamples=50)
    right = [p == label for label, p in zip(labels, predictions, strict=True)]
    for name, side in (("sensitivity", 1), ("specificity", 0)):
        chosen = [ok for ok, label in zip(right, labels, strict=True) if label == side]
        if chosen:
            assert got[name].value == pytest.approx(np.mean(chosen))
        else:
            assert name not in got
    if 0 < sum(labels) < len(labels):
        assert got["auroc"].value == pytest.approx(sk.roc_auc_score(labels, scores[:, 1]))
        assert got["auprc"].value == pytest.approx(sk.average_precision_score(labels, scores[:, 1]))


def test_interval_of_a_resample_is_the_metric_on_the_drawn_samples():
    """The weighted statistics equal the plain ones on samples drawn with repetition."""
    from ghar.metrics.bootstrap import resample_weights

    rng = np.random.default_rng(1)
    labels, predictions = rng.integers(0, 3, 40), rng.integers(0, 3, 40)
    scores = rng.dirichlet(np.ones(3), 40)
    got = classification(labels.tolist(), predictions.tolist(), 3, scores, patients=None, seed=7, resamples=50)
    drawn = [np.repeat(np.arange(40), w.astype(int)) for w in next(resample_weights(40, 50, 7))]
    f1 = [sk.f1_score(labels[d], predictions[d], average="macro") for d in drawn]
    auc = [sk.roc_auc_score(labels[d], scores[d], multi_class="ovr") for d in drawn]
    assert (got["macro_f1"].low, got["macro_f1"].high) == pytest.approx(tuple(np.percentile(f1, [2.5, 97.5])))
    assert (got["auroc"].low, got["auroc"].high) == pytest.approx(tuple(np.percentile(auc, [2.5, 97.5])))


def test_same_seed_same_numbers():
    labels, predictions = [0, 1, 2, 1] * 20, [0, 1, 1, None] * 20
    assert classification(labels, predictions, 3, patients=None, seed=3) == classification(
        labels, predictions, 3, patients=None, seed=3
    )
    assert classification(labels, predictions, 3, patients=None, seed=3) != classification(
        labels, predictions, 3, patients=None, seed=4
    )


def test_ten_times_the_samples_take_about_ten_times_as_long():
    rng = np.random.default_rng(0)
    labels, predictions = rng.integers(0, 10, 1000).tolist(), rng.integers(0, 10, 1000).tolist()

    def of(count):
        return lambda: classification(labels[:count], predictions[:count], 10, patients=None, resamples=1000)

    assert times_as_long(of(100), of(1000)) < TENFOLD


@pytest.mark.parametrize(
    ("labels", "predictions", "scores", "word"),
    [
        ([], [], None, "no samples"),
        ([0, 1], [0], None, "2 labels and 1 predictions"),
        ([0, 3], [0, 1], None, "0 to 2"),
        ([0, 1], [0, 3], None, "prediction 3"),
        ([0, 1], [0, -1], None, "prediction -1"),
        ([0, 1], [0, 1], np.ones((2, 2)), "shape"),
        ([0, 1], [0, 1], np.array([[1, 0, 0], [np.nan, 0, 0]]), "sample 1"),
    ],
)
def test_bad_input(labels, predictions, scores, word):
    with pytest.raises(BadInput, match=word):
        classification(labels, predictions, 3, scores, patients=None)


def test_a_class_that_a_draw_loses_does_not_lift_a_mean_over_classes() -> None:
    """A constant answer has a third of three classes' balanced accuracy, on every draw."""
    labels = [0] * 27 + [1] * 4 + [2]
    found = classification(labels, [0] * 32, 3, patients=range(32))
    assert [found["balanced_accuracy"].low, found["balanced_accuracy"].high] == pytest.approx([1 / 3, 1 / 3])
    assert found["macro_f1"].high <= 1 / 3
