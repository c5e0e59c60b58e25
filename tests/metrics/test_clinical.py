"""GraphWalker's numbers equal scikit-learn's, resample by resample."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk

from ghar.errors import BadInput
from ghar.metrics.bootstrap import resample_weights, spreads
from ghar.metrics.clinical import best_threshold, length_of_stay, risk


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[int], list[float], float]:
    n = draw(st.integers(2, 25))
    labels = [0, 1, *draw(st.lists(st.integers(0, 1), min_size=n - 2, max_size=n - 2))]
    scores = draw(st.lists(st.integers(0, 6), min_size=n, max_size=n))  # coarse, so that ties are common
    return labels, [s / 6 for s in scores], draw(st.integers(0, 6)) / 6


def f1(labels: Sequence[int], said: Sequence[bool]) -> float:
    hits = sum(bool(y) and yes for y, yes in zip(labels, said, strict=True))
    return 2 * hits / (sum(labels) + sum(said))


@settings(max_examples=30)
@given(answers())
def test_risk_equals_scikit_learn(case: tuple[list[int], list[float], float]) -> None:
    labels, scores, threshold = case
    got = risk(
        labels, scores, threshold, patients=None, resamples=50
    )  # so many that no small sample loses a class in all of them
    assert got["auroc"].value == pytest.approx(sk.roc_auc_score(labels, scores))
    assert got["auprc"].value == pytest.approx(sk.average_precision_score(labels, scores))
    said = [int(s >= threshold) for s in scores]
    assert got["f1"].value == pytest.approx(sk.f1_score(labels, said))
    each = {t: f1(labels, [s >= t for s in scores]) for t in scores}
    assert got["best_f1"].value == pytest.approx(max(each.values()))
    chosen = best_threshold(labels, scores)
    assert each[chosen] == pytest.approx(max(each.values()))
    assert all(each[t] < each[chosen] - 1e-12 for t in each if t > chosen)


@settings(max_examples=25)
@given(st.data())
def test_length_of_stay_equals_scikit_learn(data: st.DataObject) -> None:
    extra = data.draw(st.lists(st.integers(0, 3), max_size=12))
    labels = [0, 1, 2, 3, *extra]
    rows = data.draw(
        st.lists(st.lists(st.integers(1, 5), min_size=4, max_size=4), min_size=len(labels), max_size=len(labels))
    )
    shares = np.array(rows, float)
    shares /= shares.sum(1, keepdims=True)
    got = length_of_stay(labels, shares.tolist(), 4, patients=None, resamples=5)
    one_hot = np.eye(4)[labels]
    for name, average in (("ma_roc", "macro"), ("mi_roc", "micro")):
        assert got[name].value == pytest.approx(sk.roc_auc_score(one_hot, shares, average=average))


def test_mean_and_deviation_are_over_the_resamples() -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 2, 40)
    scores = np.clip(0.3 * labels + 0.6 * rng.random(40), 0, 1).round(2)
    got = risk(labels.tolist(), scores.tolist(), 0.5, patients=None, seed=7, resamples=20)
    drawn = []
    for weights in resample_weights(40, 20, 7):
        for row in weights.astype(int):
            y, s = np.repeat(labels, row), np.repeat(scores, row)
            best = max(f1(y, s >= t) for t in set(s))
            drawn.append((sk.roc_auc_score(y, s), sk.average_precision_score(y, s), sk.f1_score(y, s >= 0.5), best))
    for name, values in zip(("auroc", "auprc", "f1", "best_f1"), np.array(drawn).T, strict=True):
        assert got[name].mean == pytest.approx(values.mean()), name
        assert got[name].deviation == pytest.approx(values.std()), name
    assert str(got["auroc"]) == f"{100 * got['auroc'].mean:.2f}±{100 * got['auroc'].deviation:.2f}"


def test_the_deviation_is_the_standard_error() -> None:
    values = np.random.default_rng(1).normal(2, 3, 400)
    got = spreads(lambda w: {"mean": w @ values / 400}, 400, patients=None, resamples=2000)["mean"]
    assert got.as_list() == [got.value, got.mean, got.deviation] and got.value == pytest.approx(values.mean())
    assert got.mean == pytest.approx(values.mean(), abs=0.02)
    assert got.deviation == pytest.approx(values.std() / 20, rel=0.1)


def test_an_unreadable_answer_is_wrong() -> None:
    labels = [0, 1, 0, 1]
    right = risk(labels, [0.1, 0.9, 0.2, 0.8], 0.5, patients=None)
    assert right["auroc"].value == right["f1"].value == 1
    missing = risk(labels, [0.1, None, None, 0.8], 0.5, patients=None)
    assert missing["auroc"].value == 0.25 and missing["f1"].value == pytest.approx(0.5)
    stays = length_of_stay([0, 1], [[0.9, 0.1], None], 2, patients=None)
    assert (
        stays["ma_roc"].value == 0
        and length_of_stay([0, 1], [[0.9, 0.1], [0, 1]], 2, patients=None)["mi_roc"].value == 1
    )


def test_what_labels_leave_undefined_is_left_out() -> None:
    assert set(risk([0, 0], [0.1, 0.9], 0.5, patients=None)) == set()
    assert best_threshold([0, 0], [0.1, 0.9]) == 0.5
    assert set(risk([1, 1], [0.1, 0.9], 0.5, patients=None)) == {"f1", "best_f1"}


@pytest.mark.parametrize("call, said", [
    (lambda: risk([], [], 0.5, patients=None), "at least 1"),
    (lambda: risk([0, 1], [0.5], 0.5, patients=None), "one prediction per label"),
    (lambda: risk([0, 2], [0.5, 0.5], 0.5, patients=None), "classes 0 to 1"),
    (lambda: risk([0, 1], [0.5, 85.0], 0.5, patients=None), "sample 1 is 85.0"),
    (lambda: risk([0, 1], [0.5, float("nan")], 0.5, patients=None), "sample 1 is nan"),
    (lambda: length_of_stay([0, 4], [[1, 0, 0, 0]] * 2, 4, patients=None), "classes 0 to 3"),
    (lambda: length_of_stay([0, 1], [[1, 0], [1, 0, 0]], 2, patients=None), "Sample 1"),
    (lambda: length_of_stay([0, 1], [[1, 0], [float("nan"), 0]], 2, patients=None), "Sample 1"),
])  # fmt: skip
def test_bad_input_is_a_sentence(call, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        call()
