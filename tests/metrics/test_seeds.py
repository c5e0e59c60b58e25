"""Intervals over seeds and patients: equal to a direct loop, and true as often as they say."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from ghar.metrics.bootstrap import mean_interval
from ghar.metrics.seeds import draw_over_seeds, seeds_and_patients, seeds_and_patients_difference

value = st.integers(-9, 9).map(float)
study = st.lists(st.lists(st.tuples(st.sampled_from("abcde"), value, value), min_size=1, max_size=8), min_size=1,
                 max_size=4)  # fmt: skip


def direct(values: list[list[float]], patients: list[list[str]], resamples: int, seed: int) -> list[float]:
    """Draw patients one by one, a seed none of whose patients were drawn is left out; then add the seeds' part."""
    people = list(dict.fromkeys(name for column in patients for name in column))
    who = np.random.default_rng(seed).integers(0, len(people), (resamples, len(people)))
    means: list[dict[int, float]] = []
    for drawn in who:
        means.append({})
        for at, (column, names) in enumerate(zip(values, patients, strict=True)):
            picked = [v for i in drawn for v, name in zip(column, names, strict=True) if name == people[i]]
            means[-1] |= {at: float(np.mean(picked))} if picked else {}
    found = [np.mean(list(row.values())) for row in means]
    if len(values) == 1:
        return [float(one) for one in found]
    between = np.var([np.mean(column) for column in values], ddof=1)
    apart = [[row[at] - mid for row, mid in zip(means, found, strict=True) if at in row] for at in range(len(values))]
    patients_part = sum(np.var(one) for one in apart if one) / (len(values) - 1)
    scale = np.sqrt(max(between - patients_part, 0) / len(values))
    order = np.random.default_rng([seed, 1]).permutation(resamples)
    quantiles = [student.ppf((k + 0.5) / resamples, len(values) - 1) for k in order]
    return [float(one + scale * quantile) for one, quantile in zip(found, quantiles, strict=True)]


@pytest.mark.slow
@settings(max_examples=60)
@given(study)
def test_equals_a_direct_loop(rows: list[list[tuple[str, float, float]]]) -> None:
    patients = [[name for name, _, _ in column] for column in rows]
    a, b = [[x for _, x, _ in column] for column in rows], [[x for _, _, x in column] for column in rows]
    apart = [[one - two for one, two in zip(*columns, strict=True)] for columns in zip(a, b, strict=True)]
    for found, values in (
        (seeds_and_patients(a, patients, seed=2, resamples=30), a),
        (seeds_and_patients_difference(a, b, patients, seed=2, resamples=30), apart),
    ):
        each = direct(values, patients, 30, 2)
        assert found.value == pytest.approx(np.mean([np.mean(column) for column in values]))
        low, high = np.percentile(each, [2.5, 97.5])
        if values is a:
            low, high = max(low, min(map(min, a))), min(high, max(map(max, a)))
        assert (found.low, found.high) == pytest.approx((low, high), abs=1e-9)


def test_one_seed_is_an_interval_over_patients() -> None:
    values, who = np.random.default_rng(0).normal(size=30), [i // 3 for i in range(30)]
    one = seeds_and_patients([values], [who], seed=4)
    assert one.as_list() == pytest.approx(mean_interval(values, patients=who, seed=4).as_list())


def test_seeds_that_agree_leave_the_patients() -> None:
    """The same numbers of the same patients under five seeds are no more than under one."""
    values, who = np.random.default_rng(0).normal(size=30), [i // 3 for i in range(30)]
    one, five = (seeds_and_patients([values] * n, [who] * n, seed=4) for n in (1, 5))
    assert five.as_list() == pytest.approx(one.as_list())


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [2, 3, 5])
def test_few_seeds_hold_the_truth_as_often_as_they_say(seeds: int) -> None:
    """Of simulated studies of 60 patients with 1 to 3 stays 93 to 97%, and of 200 whose seeds differ by nothing, as
    much as means over patients, or four times as much, 92 to 98%."""
    shares = [_share_of_200(seeds, between) for between in (0.0, 0.05, 0.2)]
    assert all(0.92 <= share <= 0.98 for share in shares), shares
    assert 0.93 <= np.mean(shares) <= 0.97


def _share_of_200(seeds: int, between: float) -> float:
    """Of 200 studies, whose interval holds the truth. between: standard deviation of seeds; of their mean over patients
    it is 0.05."""
    hits = 0
    for study in range(200):
        rng = np.random.default_rng([seeds, study])
        who = np.repeat(np.arange(60), rng.integers(1, 4, 60))
        luck = rng.normal(0, 0.4, 60)[who]
        values = [luck + rng.normal(0, between) + rng.normal(0, 0.25, len(who)) for _ in range(seeds)]
        found = seeds_and_patients(values, [who.tolist()] * seeds, seed=study, resamples=300)
        hits += found.low <= 0 <= found.high
    return hits / 200


@pytest.mark.slow
def test_coverage_over_seeds_and_patients() -> None:
    """Of 200 simulated studies (8 seeds on the same 40 patients with 1 to 4 stays) 90 to 98% hold the true difference;
    an interval over patients that takes the seeds for one long table holds it far less often."""
    rng, hits, pooled = np.random.default_rng(1), 0, 0
    for i in range(200):
        who = np.repeat(np.arange(40), rng.integers(1, 5, 40))
        luck = rng.normal(0, 1, 40)[who]
        truth = 0.3
        a = [truth + luck + rng.normal(0, 0.4) + rng.normal(0, 0.5, len(who)) for _ in range(8)]
        b = [rng.normal(0, 0.3, len(who)) for _ in range(8)]
        found = seeds_and_patients_difference(a, b, [who.tolist()] * 8, seed=i, resamples=300)
        hits += found.low <= truth <= found.high
        long = mean_interval(np.concatenate(a), patients=None, seed=i, resamples=300)
        pooled += long.low <= truth <= long.high
    assert 0.90 <= hits / 200 <= 0.98 and pooled / 200 < 0.8


def test_what_is_refused() -> None:
    for values, patients, word in (
        ([], [], "at least one seed"), ([[1.0], []], [["a"], []], "at least one seed"),
        ([[float("nan")]], [["a"]], "finite"), ([[1.0]], [["a", "b"]], "one to one"),
        ([[1.0]], [["a"], ["b"]], "one to one"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=word):
            seeds_and_patients(values, patients)
    with pytest.raises(ValueError, match="1 and 2"):
        seeds_and_patients_difference([[1.0]], [[1.0], [2.0]], [["a"]])
    with pytest.raises(ValueError, match="one to one"):
        seeds_and_patients_difference([[1.0]], [[1.0, 2.0]], [["a"]])


def p_of_mean(values: np.ndarray, seed: int = 0) -> float:
    """Of one value a patient, no difference being 0."""
    number = lambda weights: weights @ values / weights.sum(axis=1)  # noqa: E731
    return draw_over_seeds([number], [range(len(values))], seed=seed).p()


def test_p_beyond_what_the_draws_tell_is_that_of_a_t_test() -> None:
    values = np.random.default_rng(0).normal(0.5, 1.0, 200)
    exact = 2 * student.sf(values.mean() / (values.std(ddof=1) / np.sqrt(200)), 199)
    assert exact < 1e-6 and 0.1 * exact < p_of_mean(values) < 10 * exact
    assert p_of_mean(values - values.mean() + 1e-3) > 0.5 and p_of_mean(0 * values) == 1


@pytest.mark.parametrize("patients", [1, 2, 3, 5])
def test_signs_of_a_few_patients_agree_by_chance(patients: int) -> None:
    assert p_of_mean(np.ones(patients)) == 2.0 ** (1 - patients)


@pytest.mark.slow
@pytest.mark.parametrize(("patients", "most"), [(3, 0.0), (5, 0.0), (10, 0.1), (40, 0.07)])
def test_p_is_below_five_percent_as_seldom_as_it_says(patients: int, most: float) -> None:
    rng = np.random.default_rng(patients)
    found = [p_of_mean(rng.normal(size=patients), seed) < 0.05 for seed in range(400)]
    assert np.mean(found) <= most + 2 * np.sqrt(0.05 * 0.95 / 400) * (most > 0)


def test_seeds_that_differ_weigh_more_than_patients_that_do_not() -> None:
    """Two seeds say little of all seeds, however sure the patients of each are."""
    apart = [np.full(200, 0.2), np.full(200, 0.4)]
    numbers = [lambda weights, own=own: weights @ own / weights.sum(axis=1) for own in apart]
    p = draw_over_seeds(numbers, [range(200)] * 2).p()
    assert p == pytest.approx(2 * student.sf(0.3 / 0.1, 1))
