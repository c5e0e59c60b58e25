"""The bootstrap draws n of n with repetition, covers the truth and pairs what is paired."""

import numpy as np
import pytest

from ghar.metrics.bootstrap import Interval, mean_interval, paired_difference, ratio_interval, resample_weights


def test_every_resample_draws_n_samples():
    blocks = np.concatenate(list(resample_weights(17, 101, seed=0)))
    assert blocks.shape == (101, 17) and (blocks.sum(axis=1) == 17).all()
    assert abs(blocks.mean(axis=0) - 1).max() < 0.5


def test_large_sets_are_drawn_in_blocks():
    blocks = list(resample_weights(1_500_000, 2, seed=0))
    assert [block.shape for block in blocks] == [(1, 1_500_000)] * 2
    assert not np.array_equal(blocks[0], blocks[1])


def test_coverage_of_the_mean():
    """95% intervals of 300 repetitions cover the true mean between 90% and 99% of the time."""
    rng = np.random.default_rng(5)
    found = [mean_interval(rng.normal(2.0, 1.0, 100), patients=None, seed=i, resamples=300) for i in range(300)]
    assert 0.90 < np.mean([i.low <= 2.0 <= i.high for i in found]) < 0.99


def test_pairs_are_narrower_than_independent_draws():
    rng = np.random.default_rng(0)
    easy = rng.normal(0, 10, 200)
    better = easy + 1 + rng.normal(0, 0.1, 200)
    difference = paired_difference(better, easy, patients=None)
    assert difference.value == pytest.approx(1, abs=0.1)
    assert difference.low > 0.9 and difference.high < 1.1


def test_ratio_of_sums():
    found = ratio_interval([1, 0, 3], [2, 0, 4], patients=None)
    assert found is not None and found.value == pytest.approx(4 / 6)
    assert ratio_interval([0, 0], [0, 0], patients=None) is None


def test_refuses_what_has_no_mean():
    for values in ([], [1.0, float("nan")]):
        with pytest.raises(ValueError):
            mean_interval(values, patients=None)
    with pytest.raises(ValueError, match="2 and 3"):
        paired_difference([1, 2], [1, 2, 3], patients=None)


def test_interval_reads_well():
    assert str(Interval(0.5, 0.25, 0.75)) == "0.500 [0.250, 0.750]"
    assert Interval(0.5, 0.25, 0.75).as_list() == [0.5, 0.25, 0.75]
