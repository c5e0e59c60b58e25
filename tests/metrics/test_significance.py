"""Tests of paired differences: p against a direct loop, Holm against the closed test it shortens, power simulated."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from ghar.metrics.bootstrap import RESAMPLES, differences, paired_difference, resampled, weighted_mean
from ghar.metrics.significance import detectable_difference, holm, p_of

chances = st.lists(st.integers(0, 20).map(lambda x: x / 20), max_size=6)


@settings(max_examples=100)
@given(chances)
def test_holm_is_the_closed_test_of_bonferroni(p: list[float]) -> None:
    """A test is rejected when Bonferroni rejects every set of tests that it is in."""
    sets = [s for size in range(1, len(p) + 1) for s in combinations(range(len(p)), size)]
    expected = [max(min(1.0, len(s) * min(p[j] for j in s)) for s in sets if i in s) for i in range(len(p))]
    assert holm(p) == pytest.approx(expected)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    for bad in ([-0.1], [1.1], [float("nan")]):
        with pytest.raises(ValueError, match=r"0\.\.1"):
            holm(bad)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(-3, 3), st.integers(-3, 3)), min_size=1, max_size=12))
def test_p_equals_a_direct_loop(rows: list[tuple[int, int, int]]) -> None:
    names, a, b = (list(column) for column in zip(*rows, strict=True))
    people = list(dict.fromkeys(names))
    below = above = 0
    for drawn in np.random.default_rng(6).integers(0, len(people), (50, len(people))):
        total = sum(x - y for i in drawn for name, x, y in rows if name == people[i])
        below, above = below + (total <= 0), above + (total >= 0)
    got = p_value(a, b, patients=names, seed=6, resamples=50)
    assert got == pytest.approx(min(1, 2 * (min(below, above) + 1) / 51))


def test_p_agrees_with_the_interval() -> None:
    rng, seen = np.random.default_rng(0), set()
    for i in range(60):
        who = np.repeat(np.arange(30), 3)
        a = rng.normal(0.35, 1, 30)[who] + rng.normal(0, 0.2, 90)
        difference = paired_difference(a, 0 * a, patients=who.tolist(), seed=i)
        p = p_value(a, 0 * a, patients=who.tolist(), seed=i)
        beyond = difference.low > 0 or difference.high < 0
        seen.add(beyond)
        assert p < 0.053 if beyond else p > 0.047
    assert seen == {True, False}


def test_no_difference_and_a_clear_one() -> None:
    same = [0.1, 0.2, 0.3]
    assert p_value(same, same, patients=None) == 1
    assert p_value([1.1, 1.2, 1.3], same, patients=None, resamples=999) == pytest.approx(0.002)


def p_value(a: Sequence[float], b: Sequence[float], **draw: Any) -> float:
    """Of the mean difference of pairs, by resamples of whole patients."""
    apart = differences(a, b)
    draw = {"seed": 0, "resamples": RESAMPLES, **draw}
    drawn = resampled(lambda w: {"difference": weighted_mean(w, apart)}, len(apart), **draw)["difference"][1]
    return p_of(drawn, float(np.abs(apart).max()))


@pytest.mark.parametrize(("samples", "disagree", "power"), [(505, 0.125, 0.8), (200, 0.3, 0.8), (1000, 0.05, 0.9)])
def test_the_detectable_difference_is_shown_as_often_as_its_power_says(
    samples: int, disagree: float, power: float
) -> None:
    """McNemar's test on simulated pairs of policies that differ by it."""
    difference = detectable_difference(samples, disagree, power)
    shares = [(disagree + difference) / 2, (disagree - difference) / 2, 1 - disagree]
    first, second, _ = np.random.default_rng(0).multinomial(samples, shares, size=20_000).T
    shown = np.abs(first - second) > norm.ppf(0.975) * np.sqrt(first + second)
    assert shown.mean() == pytest.approx(power, abs=0.02)


def test_the_detectable_difference_shrinks_with_the_test_and_may_not_exist() -> None:
    assert detectable_difference(505, 0.125) == pytest.approx(0.044, abs=0.001)
    assert detectable_difference(2020, 0.125) == pytest.approx(0.022, abs=0.001)
    assert np.isnan(detectable_difference(5, 0.2)) and np.isnan(detectable_difference(100, 0.0))
