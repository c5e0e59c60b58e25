"""The benchmark at a small size: it runs, and its own checks find nothing wrong and something planted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import kare_graph as bench_kare_graph
from benchmarks.kare_graph import LIMITS, faults, generated_graph, generated_sets, kare_graph, keep_directly
from benchmarks.result import tell
from ghar.envs.kare.graph.near_duplicates import keep_different
from ghar.kg.paths import PathSearch


def test_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_kare_graph, "PAIRS", 20)
    result = kare_graph(share=0.01, seed=1)
    tell("kare_graph", tmp_path, result)
    assert json.loads((tmp_path / "kare_graph.json").read_text()) == result
    assert result["sets"] == 440 and result["sets that stay"] < 440
    assert result["sets on which filter and rule differ"] == 0
    assert result["alike: edges"] == result["hubs: edges"] == 10_000
    assert result["alike: faults in their paths"] == result["hubs: faults in their paths"] == 0


def test_another_threshold_keeps_other_sets() -> None:
    sets = generated_sets(300, 0)
    assert keep_directly(sets, 3).tolist() == keep_different(sets, 3).tolist()
    assert len(keep_directly(sets, 3)) > len(keep_directly(sets, 9))


def test_planted_faults_are_seen() -> None:
    graph = generated_graph(300, 1_000, 1.0, 0)
    paths = PathSearch(graph, **LIMITS).find(0, 1).paths
    assert faults(graph, 0, 1, paths) == 0
    assert faults(graph, 0, 1, paths[1:]) > 0  # a shortest one is missing
    assert faults(graph, 0, 1, paths[::-1]) > 0
    assert faults(graph, 0, 1, (*paths, paths[-1])) > 0
    twice = (*paths[-1][:2], *paths[-1][:2], *paths[-1][2:])
    assert faults(graph, 0, 1, (*paths[:-1], twice)) > 0
