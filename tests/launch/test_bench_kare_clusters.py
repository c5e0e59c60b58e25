"""The benchmark of KARE's clustering measures what it says, at a small size."""

from __future__ import annotations

import numpy as np

from benchmarks import kare_clusters as bench


def test_small_run_has_every_number():
    result = bench.measure(300, 0) | bench.compare(300, 0)
    assert result["names"] == 300 and 1 < result["clusters"] < 300 and 0 < result["peak memory in GB"] < 8
    assert result["300 names: adjusted Rand against all distances"] == 1


def test_generated_vectors_have_length_one_and_follow_the_seed():
    one, again, other = bench.generated(50, 1), bench.generated(50, 1), bench.generated(50, 2)
    assert np.allclose(np.linalg.norm(one, axis=1), 1) and np.array_equal(one, again) and not np.allclose(one, other)
