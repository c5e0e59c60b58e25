"""Retrieval at PrimeKG's size: what an index costs to build, to open and to ask (benchmarks/run.py retrieval).

Build and opening run in fresh processes, so that neither finds anything ready in memory. Partition queries are asked
one at a time, each naming a node of its partition; the partition is drawn in two ways, every meta-path alike and by its
number of edges (which favours the largest). The same queries are asked of the whole graph, and of the partition
without lists, whose answers are exact.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.graph import primekg_sized
from benchmarks.requests import EPISODES, LOOKUPS, requests_ladder, settings_of
from ghar.episode import Evidence, Retrieve
from ghar.kg.graph import KnowledgeGraph
from ghar.progress import track
from ghar.retrieval.build import build_retriever
from ghar.retrieval.partition import PartitionRetriever

KIND = "hashing"
QUERIES = 400  # per way of drawing partitions
PROBES = 16  # lists of a large partition that a query reads; runs read all, exactly, unless retriever.probes is set
WHOLE = 20  # queries to the whole graph
TEMPLATES = ("{name}", "what is known about {name}", "severity and treatment of {name}")
LIMIT = 3600.0  # seconds a step may take


def retrieval(folder: Path, *, share: float, seed: int) -> dict[str, Any]:
    """Numbers of each step; graph and index stay in `folder` and are not built again. share: of PrimeKG's size."""
    folder.mkdir(parents=True, exist_ok=True)
    graph_folder, cache = folder / f"graph-{share:g}-seed{seed}", folder / "indexes"
    if not graph_folder.exists():
        primekg_sized(seed, share).save(graph_folder)
    result = {**_built(graph_folder, cache), **_fresh(_open, graph_folder, cache)}
    retriever = open_retriever(graph_folder, cache)
    result |= {"nodes": retriever.graph.num_nodes, "edges": retriever.graph.num_edges}
    result |= _queries(retriever, np.random.default_rng(seed))
    result |= _ladder(retriever, graph_folder, cache, seed)
    result["load average (other work on the machine inflates all times but CPU seconds)"] = os.getloadavg()[0]
    return result


def open_retriever(graph_folder: Path, cache: Path) -> PartitionRetriever:
    """The retriever of a run with retriever.probes=16; builds its index where there is none."""
    graph = KnowledgeGraph.load(graph_folder)
    return build_retriever(graph, KIND, cache=cache, probes=PROBES)


def _built(graph_folder: Path, cache: Path) -> dict[str, float]:
    """What the build took, now or when it was done."""
    kept = cache / f"{graph_folder.name}.json"
    if not kept.exists():
        shutil.rmtree(cache, ignore_errors=True)
        numbers = _fresh(_build, graph_folder, cache)
        kept.write_text(json.dumps(numbers, indent=1) + "\n")
    return json.loads(kept.read_text())


def _build(graph_folder: Path, cache: Path) -> dict[str, float]:
    start, cpu = time.perf_counter(), time.process_time()
    with _watched_memory() as peak:
        open_retriever(graph_folder, cache)
    size = sum(f.stat().st_size for f in cache.rglob("*") if f.is_file())
    return {
        "build, seconds": time.perf_counter() - start,
        "build, CPU seconds": time.process_time() - cpu,
        "build, peak memory in GB (without mapped files)": peak(),
        "index on disk in GB": size / 1e9,
    }


def _open(graph_folder: Path, cache: Path) -> dict[str, float]:
    import faiss  # noqa: F401  (opening is measured, not importing)
    import sklearn.feature_extraction.text  # noqa: F401

    start = time.perf_counter()
    open_retriever(graph_folder, cache)
    return {"open, seconds": time.perf_counter() - start}


def _queries(retriever: PartitionRetriever, rng: np.random.Generator) -> dict[str, float]:
    graph, exact = retriever.graph, replace(retriever, lists=None)
    edges = np.diff(graph.path_start)
    uniform = np.full(graph.num_paths, 1 / graph.num_paths)
    result: dict[str, float] = {}
    asked: dict[str, list[Retrieve]] = {}
    for name, weights in (("any meta-path", uniform), ("by edges", edges / edges.sum())):
        asked[name] = requests_of(graph, rng, rng.choice(graph.num_paths, QUERIES, p=weights))
    whole = [replace(request, partitions=None) for request in asked["any meta-path"][:WHOLE]]
    whole_times, whole_cpu, _ = _timed(retriever, whole, "Ask the whole graph")
    result |= {"whole graph, p50 ms": _median(whole_times), "whole graph, p50 CPU ms": _median(whole_cpu)}
    for name, requests in asked.items():
        times, cpu, answers = _timed(retriever, requests, f"Ask partitions ({name})")
        for q in (50, 90, 99):
            result[f"partition ({name}), p{q} ms"] = float(np.percentile(times, q))
        result[f"partition ({name}), p50 CPU ms"] = _median(cpu)
        result[f"whole graph / partition ({name}), p50"] = _median(whole_times) / _median(times)
        result[f"whole graph / partition ({name}), p50 of CPU time"] = _median(whole_cpu) / _median(cpu)
        exact_times, exact_cpu, truth = _timed(exact, requests, f"Ask partitions exactly ({name})")
        result[f"partition ({name}) without lists, p50 ms"] = _median(exact_times)
        result[f"partition ({name}) without lists, p50 CPU ms"] = _median(exact_cpu)
        result[f"partition ({name}), recall@1"] = _recall(answers, truth)
        result[f"partition ({name}), best score found"] = _same_score(answers, truth)
        ten = [replace(request, top_n=10) for request in requests]
        result[f"partition ({name}), recall@10"] = _recall(retriever.retrieve(ten), exact.retrieve(ten))
    return result


def _ladder(retriever: PartitionRetriever, graph_folder: Path, cache: Path, seed: int) -> dict[str, float]:
    """Fig. 8(c), on queries to partitions drawn by their number of edges."""
    graph, rng = retriever.graph, np.random.default_rng(seed + 1)
    edges = np.diff(graph.path_start)
    partitions = rng.choice(graph.num_paths, EPISODES * LOOKUPS, p=edges / edges.sum())
    settings = settings_of(graph_folder, KIND, cache, retriever)
    ladder = requests_ladder(retriever, requests_of(graph, rng, partitions), settings, seed=seed)
    return {f"Fig. 8(c), {name}": seconds for name, seconds in ladder.items()}


def requests_of(graph: KnowledgeGraph, rng: np.random.Generator, partitions: np.ndarray) -> list[Retrieve]:
    """One query for each of `partitions`: a sentence with the name of a node at the end of one of its edges."""
    requests = []
    for partition in partitions.tolist():
        edges = graph.edges_of_path(partition)
        edge = int(rng.integers(edges.start, edges.stop))
        node = int((graph.head, graph.tail)[rng.integers(2)][edge])
        query = str(rng.choice(TEMPLATES)).format(name=graph.names[node])
        requests.append(Retrieve(query, (partition,), 1))
    return requests


def _timed(
    retriever: PartitionRetriever, requests: Sequence[Retrieve], title: str
) -> tuple[list[float], list[float], list[Evidence]]:
    """Milliseconds, milliseconds of CPU and answer of each request, asked alone."""
    times, cpu, answers = [], [], []
    for request in track(requests, title):
        start, cpu_start = time.perf_counter(), time.process_time()
        answers += retriever.retrieve([request])
        times.append(1000 * (time.perf_counter() - start))
        cpu.append(1000 * (time.process_time() - cpu_start))
    return times, cpu, answers


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


def _recall(evidence: Sequence[Evidence], truth: Sequence[Evidence]) -> float:
    """Share of the true passages that were found; one with the same kind and score stands for it (ties)."""
    hit = total = 0
    for a, b in zip(evidence, truth, strict=True):
        pool = [(p.kind, p.score) for p in a.passages]
        total += len(b.passages)
        for passage in b.passages:
            if (passage.kind, passage.score) in pool:
                pool.remove((passage.kind, passage.score))
                hit += 1
    return hit / total


def _same_score(evidence: Sequence[Evidence], truth: Sequence[Evidence]) -> float:
    """Share of the requests whose best score is the true one."""
    pairs = zip(evidence, truth, strict=True)
    return float(np.mean([a.passages[0].score == b.passages[0].score for a, b in pairs]))


def _fresh(function: Callable[..., dict[str, float]], *arguments: Any) -> dict[str, float]:
    """Call a function of this module in a new process."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result(timeout=LIMIT)


@contextmanager
def _watched_memory() -> Iterator[Callable[[], float]]:
    """Sample this process's anonymous memory; the function yielded gives its peak in GB."""
    peak, stop = 0.0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not stop.wait(0.02):
            lines = Path("/proc/self/status").read_text().splitlines()
            peak = max(peak, *(int(line.split()[1]) / 1e6 for line in lines if line.startswith("RssAnon")))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield lambda: peak
    finally:
        stop.set()
        thread.join()
