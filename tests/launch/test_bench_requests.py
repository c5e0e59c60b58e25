"""Fig. 8(c) at its smallest: every rung runs, on the same look-ups, and the service of the last two is ended."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("fastapi", reason="the service needs ghar[service]")

from benchmarks import requests as bench_requests
from benchmarks.requests import LOOKUPS, requests_ladder
from ghar.episode import Retrieve
from ghar.retrieval.build import build_retriever
from ghar.retrieval.service import ServiceSettings
from tests.kg.graphs import TINY, graph_of

pytestmark = pytest.mark.slow


def test_the_papers_three_improvements_are_rungs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_requests, "EPISODES", 6)
    monkeypatch.setattr(bench_requests, "TOKEN", 0.001)
    graph = graph_of(tmp_path, TINY)
    graph.save(tmp_path / "graph")
    retriever = build_retriever(graph, "tfidf", cache=tmp_path / "cache")
    wishes = [Retrieve("metformin", (3,)), Retrieve("riluzole", (4,))] * (3 * LOOKUPS)
    settings = ServiceSettings(str(tmp_path / "graph"), "tfidf", str(tmp_path / "cache"), retriever.probes)
    seconds = requests_ladder(retriever, wishes, settings, seed=0)
    assert list(seconds) == ["whole graph, s", "+ meta-paths, s", "+ distributed, s", "+ asynchronous, s"]
    assert all(value > 0 for value in seconds.values())
