"""The benchmark of the event store at a small size: what it generates, builds and asks."""

from pathlib import Path

import polars as pl
import pytest

from benchmarks import events as bench_events


def test_a_small_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_events, "EVENTS", 300)
    monkeypatch.setattr(bench_events, "QUERIES", 3)
    root = tmp_path / "events"
    bench_events.write_events(root, 4, seed=0)
    [path] = root.iterdir()
    made = pl.read_parquet(path)
    assert made.height == 1200 and made.equals(made.sort("subject_id", "time", maintain_order=True))
    for apart, patients in ((True, 4), (False, 2)):
        found = bench_events._build(root, tmp_path / "stores", patients, apart)
        assert found["rows"] + found["numbers"] == 300 * patients and (found["numbers"] > 0) == apart
        assert found["events per second"] > 0 and found["chunks"] >= patients
    times = bench_events._ask(root, tmp_path / "stores", 4, 0)
    assert times.shape == (3, 2) and (times[:, 0] > 0).all()
