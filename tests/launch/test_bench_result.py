"""What a benchmark prints and keeps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.result import tell


def test_numbers_are_printed_by_path_and_kept_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = {
        "seconds": {"ours": 1.23456, "theirs": {"mean": 2.0, "low": 1.5, "high": 2.5, "seeds": 3}},
        "edges": 8_100_000,
        "largest difference": 1e-6,
        "identical": True,
        "runs": [{"a": 1}],
    }
    tell("one", tmp_path / "new", result)
    assert json.loads((tmp_path / "new" / "one.json").read_text()) == result
    said = [line.split("  ") for line in capsys.readouterr().out.splitlines()]
    assert [(line[0].strip(), line[-1].strip()) for line in said] == [
        ("seconds: ours", "1.235"),
        ("seconds: theirs", "2.000 [1.500, 2.500]"),
        ("edges", "8,100,000"),
        ("largest difference", "1e-06"),
        ("identical", "True"),
    ]


def test_nothing_measured_is_an_empty_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tell("none", tmp_path, {})
    assert json.loads((tmp_path / "none.json").read_text()) == {} and capsys.readouterr().out == ""
