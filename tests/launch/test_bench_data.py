"""The measurement of the readers at its smallest: it runs, its two sides agree, and it notices when they do not."""

from pathlib import Path

import polars as pl
import pytest

from benchmarks.data import _agree, data

pytestmark = pytest.mark.slow


def test_cold_cached_and_plain_agree(tmp_path: Path) -> None:
    result = data(tmp_path, runs=1, timeout=1800, patients=40, rows=4)
    assert result["admissions"] > 40
    for side in ("cold", "cached", "plain"):
        assert 0 < result[side]["processor seconds"] < 120 and 0.01 < result[side]["GB"] < 1
    assert result["cold"]["views"] == result["cached"]["views"] > result["admissions"]
    labels = pl.read_parquet(tmp_path / "plain" / "labels.parquet")
    assert result["cold"]["views"] == labels.height
    labels.with_columns(label=1 - pl.col("label")).write_parquet(tmp_path / "plain" / "labels.parquet")
    with pytest.raises(RuntimeError, match="differ"):
        _agree(tmp_path)
