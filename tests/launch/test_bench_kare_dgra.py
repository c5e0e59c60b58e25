"""The benchmark of DGRA at a small size."""

from __future__ import annotations

import pytest

from launch import bench_kare_dgra


def test_small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PATIENTS": 3, "CHECKED": 2, "DIMENSION": 8}.items():
        monkeypatch.setattr(bench_kare_dgra, name, value)
    result = bench_kare_dgra.dgra(share=0.01, seed=1)
    assert result["communities"] == 600
    assert [value for name, value in result.items() if "differs" in name] == [0, 0]
