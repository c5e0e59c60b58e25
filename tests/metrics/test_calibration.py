"""Calibration against scikit-learn, SciPy and direct loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn import metrics as sk

from ghar.errors import BadInput
from ghar.metrics.bootstrap import resample_weights
from ghar.metrics.calibration import calibrated, calibration, temperature
from ghar.metrics.policy import policy_summary

NAMES = ("a", "b", "c")


@st.composite
def answers(draw: st.DrawFn) -> tuple[list[int], np.ndarray]:
    classes = draw(st.integers(2, 3))
    n = draw(st.integers(1, 25))
    labels = draw(st.lists(st.integers(0, classes - 1), min_size=n, max_size=n))
    rows = draw(st.lists(st.lists(st.integers(0, 10), min_size=classes, max_size=classes), min_size=n, max_size=n))
    counts = [row if any(row) else [1] * classes for row in rows]  # coarse, so that edges of bins are met
    return labels, np.array([[x / sum(row) for x in row] for row in counts])


def slow_ece(labels: list[int], shares: np.ndarray) -> float:
    """Bin by bin, as Guo et al. write it."""
    total, top, right = 0.0, shares.max(axis=1), shares.argmax(axis=1) == labels
    for low in range(10):
        inside = [i for i, p in enumerate(top) if low / 10 < p <= (low + 1) / 10]
        if inside:
            total += len(inside) / len(labels) * abs(right[inside].mean() - top[inside].mean())
    return total


@settings(max_examples=60)
@given(answers())
def test_equals_scikit_learn_and_a_direct_loop(case: tuple[list[int], np.ndarray]) -> None:
    labels, shares = case
    got = calibration(labels, shares, patients=None, resamples=20)
    classes = shares.shape[1]
    target = shares[:, 1] if classes == 2 else shares
    every = list(range(classes))
    expected = sk.brier_score_loss(labels, target, labels=every)  # pyright: ignore
    assert got["brier"].value == pytest.approx(expected, abs=1e-9)
    assert got["ece"].value == pytest.approx(slow_ece(labels, shares), abs=1e-9)
    assert got["confidence"].value == pytest.approx(shares.max(axis=1).mean())
    assert got["top_accuracy"].value == pytest.approx(np.mean(shares.argmax(axis=1) == labels))
    assert got["ece"].low <= got["ece"].value + 1e-12 and got["ece"].value <= got["ece"].high + 1e-12


def test_resamples_draw_patients_and_the_error_s_interval_is_moved() -> None:
    rng = np.random.default_rng(3)
    labels, shares, who = rng.integers(0, 3, 40), rng.dirichlet([0.5] * 3, 40), [i // 4 for i in range(40)]
    got = calibration(labels.tolist(), shares, patients=who, seed=7, resamples=50)
    drawn = [np.repeat(np.arange(40), w.astype(int)) for w in next(resample_weights(40, 50, 7, who))]
    ece = np.array([slow_ece(labels[d].tolist(), shares[d]) for d in drawn])
    ece -= ece.mean() - got["ece"].value
    top = [shares[d].max(axis=1).mean() for d in drawn]
    assert (got["ece"].low, got["ece"].high) == pytest.approx(tuple(np.percentile(ece, [2.5, 97.5])))
    assert (got["confidence"].low, got["confidence"].high) == pytest.approx(tuple(np.percentile(top, [2.5, 97.5])))


def made(n: int, sharper: float, seed: int = 0, classes: int = 3) -> list[dict[str, Any]]:
    """Rows whose labels follow softmax(z) and whose probabilities are softmax(sharper * z)."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, 1.5, (n, classes))
    truth = [int(rng.choice(classes, p=p)) for p in softmax(logits, axis=1)]
    return [
        {"sample_id": str(i), "subject_id": i // 2, "label": NAMES[y], "label_probabilities": p.tolist()}
        for i, (y, p) in enumerate(zip(truth, softmax(sharper * logits, axis=1), strict=True))
    ]


@pytest.mark.slow
@pytest.mark.parametrize("sharper", [0.4, 1.0, 3.0])
def test_the_temperature_is_scipy_s_and_undoes_what_was_done(sharper: float) -> None:
    rows = made(1500, sharper)
    found = temperature(rows, NAMES)

    def loss(t: np.ndarray) -> float:
        shares = [row["label_probabilities"] for row in calibrated(rows, float(t[0]))]
        return sk.log_loss([row["label"] for row in rows], shares, labels=list(NAMES))

    assert found == pytest.approx(minimize(loss, [1.0], method="Nelder-Mead", tol=1e-6).x[0], rel=1e-3)
    assert found == pytest.approx(sharper, rel=0.1)


def test_calibrated_on_validation_the_error_falls_on_test() -> None:
    valid, test = made(800, 3.0, 1), made(800, 3.0, 2)
    after = calibrated([*test, {"sample_id": "x", "label_probabilities": None}], temperature(valid, NAMES))
    assert after[-1]["label_probabilities"] is None and len(after) == 801
    ece = []
    for rows in (test, after[:-1]):
        table = np.array([row["label_probabilities"] for row in rows])
        assert table.sum(axis=1) == pytest.approx(1)
        ece.append(calibration([NAMES.index(row["label"]) for row in test], table, patients=None, resamples=50)["ece"])
    assert ece[0].value > 0.15 > 0.06 > ece[1].value and ece[0].low > ece[1].high
    tops = [[np.argmax(row["label_probabilities"]) for row in rows] for rows in (test, after[:-1])]
    assert tops[0] == tops[1]


def test_temperatures_at_the_ends() -> None:
    flat = [{"label": "a", "label_probabilities": [0.5, 0.5]}, {"label": "b", "label_probabilities": [0.5, 0.5]}]
    assert temperature(flat, ("a", "b")) == 1
    sure = [{"label": "a", "label_probabilities": [1.0, 0.0]}, {"label": "b", "label_probabilities": [0.4, 0.6]}]
    assert 0.01 <= temperature(sure, ("a", "b")) < 0.1
    wrong = [{"label": "b", "label_probabilities": [1.0, 0.0]}, {"label": "a", "label_probabilities": [0.6, 0.4]}]
    assert 1 < temperature(wrong, ("a", "b")) <= 100 + 1e-6


def test_in_a_summary_only_rows_with_probabilities_count() -> None:
    more = {"prediction": "a", "correct": True, "needs_retrieval": None, "retrieved": False, "iterations": 1,
            "prompt_tokens": 1, "completion_tokens": 1, "seconds": 0.1, "reward": 1.0, "failure": None,
            "turns": []}  # fmt: skip
    rows = [{**row, **more} for row in made(40, 2.0)]
    known = policy_summary(rows[:30], NAMES, resamples=20)
    mixed = policy_summary(
        [*rows[:30], *(row | {"label_probabilities": None} for row in rows[30:])], NAMES, resamples=20
    )
    for name in ("ece", "brier", "confidence", "top_accuracy"):
        assert mixed[name] == known[name] and known[name][1] <= known[name][0] <= known[name][2]
    assert "ece" not in policy_summary([row | {"label_probabilities": None} for row in rows], NAMES, resamples=20)


def test_what_is_refused() -> None:
    assert calibration([], np.zeros((0, 2)), patients=[]) == {}
    for table in ([[0.5, 0.6]], [[-0.1, 1.1]], [[float("nan"), 1.0]]):
        with pytest.raises(BadInput, match="add up to 1"):
            calibration([0], np.array(table), patients=None)
    with pytest.raises(BadInput, match="shape"):
        calibration([0, 1], np.array([[0.5, 0.5]]), patients=None)
    with pytest.raises(BadInput, match="no row has"):
        temperature([{"label": "a", "label_probabilities": None}], NAMES)
    with pytest.raises(BadInput, match="'z' is not a label"):
        temperature([{"label": "z", "label_probabilities": [1.0, 0.0]}], ("a", "b"))
    for bad in (0, -1.0, float("nan")):
        with pytest.raises(BadInput, match="above 0"):
            calibrated([], bad)
