"""The ranking benchmark at a small size: it runs, and its own check finds nothing wrong and something planted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from benchmarks import reports as bench_reports
from benchmarks.reports import ReportQuery, code_lists, reports, wrong_places
from benchmarks.result import tell
from ghar.retrieval.reports import ReportIndex, rank, weights


def test_a_small_run(tmp_path: Path) -> None:
    result = reports(tmp_path, share=0.002, seed=1, timeout=1800)
    tell("reports", tmp_path, result)
    assert json.loads((tmp_path / "reports.json").read_text()) == result
    assert result["admissions"] == 860 and result["places that differ from a direct evaluation"] == 0
    assert result["index, seconds to build and save"] > 0 and result["one ranking, p50 ms"] > 0


def test_a_planted_error_is_seen(tmp_path: Path) -> None:
    bench_reports._build(tmp_path / "index", 300, 0)
    index = ReportIndex.load(tmp_path / "index")
    codes = code_lists(index)
    query = ReportQuery(int(index.subject_id[0]), None, codes(0))
    rows, scores = rank(index, query, weights("uniform", "diagnoses"), 15)
    everything = np.arange(300)
    assert wrong_places(index, codes, query, rows, scores, everything) == 0
    assert wrong_places(index, codes, query, rows, scores + 0.01, everything) > 0
    assert wrong_places(index, codes, query, np.append(rows[1:], 299), np.append(scores[1:], 0.0), everything) > 0
