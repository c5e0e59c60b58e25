"""A shortened campaign of flipped bits: none is read as something else."""

from pathlib import Path

import pytest

from benchmarks.flips import flips

pytestmark = pytest.mark.slow


def test_no_flip_is_silent(tmp_path: Path):
    found = flips(tmp_path, count=66, seed=0, timed=False)
    assert found["flips"] == 132 and found["silent"] == found["untold"] == 0
    assert len(found["by kind"]) == 12 and all(counts["found"] for counts in found["by kind"].values())
