"""The benchmark of DGRA at a small size."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import kare_dgra as bench_kare_dgra
from benchmarks.result import tell


def test_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"PATIENTS": 3, "CHECKED": 2, "DIMENSION": 8}.items():
        monkeypatch.setattr(bench_kare_dgra, name, value)
    result = bench_kare_dgra.dgra(share=0.01, seed=1)
    assert result["communities"] == 600
    assert [value for name, value in result.items() if "differs" in name] == [0, 0]
    tell("kare_dgra", tmp_path, result)
    assert (tmp_path / "kare_dgra.json").is_file()
