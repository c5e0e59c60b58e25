"""Retrieval at PrimeKG's size: what an index costs to build, to open and to ask (launch/benchmark.py retrieval).

Build and opening run in fresh processes, so that neither finds anything ready in memory. Partition queries are asked
one at a time, each naming a node of its partition; the partition is drawn in two ways, every meta-path alike and by its
number of edges (which favours the largest). The same queries are asked of the whole graph, and of the partition
without lists, whose answers are exact.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
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

from ghar.episode import Evidence, Retrieve
from ghar.kg.graph import KnowledgeGraph
from ghar.progress import track
from ghar.retrieval.build import build_retriever
from ghar.retrieval.partition import PartitionRetriever
from launch.bench_graph import primekg_sized
from launch.entry import load

KIND = "hashing"
QUERIES = 400  # per way of drawing partitions
WHOLE = 20  # queries to the whole graph
TEMPLATES = ("{name}", "what is known about {name}", "severity and treatment of {name}")
LIMIT = 3600.0  # seconds a step may take


def retrieval(folder: Path, *, share: float, seed: int) -> dict[str, Any]:
    """Measure and print; the graph and the index stay in `folder` and are not built again. share: of PrimeKG's size."""
    graph_folder, cache = folder / f"graph-{share:g}-seed{seed}", folder / "indexes"
    if not graph_folder.exists():
        primekg_sized(seed, share).save(graph_folder)
    result = {**_built(graph_folder, cache), **_fresh(_open, graph_folder, cache)}
    retriever = open_retriever(graph_folder, cache)
    result |= {"nodes": retriever.graph.num_nodes, "edges": retriever.graph.num_edges}
    result |= _queries(retriever, np.random.default_rng(seed))
    result["load average"] = os.getloadavg()[0]
    return result


def open_retriever(graph_folder: Path, cache: Path) -> PartitionRetriever:
    """The retriever a run would use, with the default number of probes; builds its index where there is none."""
    graph = KnowledgeGraph.load(graph_folder)
    return build_retriever(graph, KIND, cache=cache, probes=load().retriever.probes)


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
    whole_times, _ = _timed(retriever, whole, "Ask the whole graph")
    result["whole graph, p50 ms"] = float(np.median(whole_times))
    for name, requests in asked.items():
        times, answers = _timed(retriever, requests, f"Ask partitions ({name})")
        for q in (50, 90, 99):
            result[f"partition ({name}), p{q} ms"] = float(np.percentile(times, q))
        result[f"whole graph / partition ({name}), p50"] = result["whole graph, p50 ms"] / float(np.median(times))
        exact_times, truth = _timed(exact, requests, f"Ask partitions exactly ({name})")
        result[f"partition ({name}) without lists, p50 ms"] = float(np.median(exact_times))
        result[f"partition ({name}), recall@1"] = _recall(answers, truth)
        result[f"partition ({name}), best score found"] = _same_score(answers, truth)
        ten = [replace(request, top_n=10) for request in requests]
        result[f"partition ({name}), recall@10"] = _recall(retriever.retrieve(ten), exact.retrieve(ten))
    return result


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
) -> tuple[list[float], list[Evidence]]:
    """Milliseconds and answer of each request, asked alone."""
    times, answers = [], []
    for request in track(requests, title):
        start = time.perf_counter()
        answers += retriever.retrieve([request])
        times.append(1000 * (time.perf_counter() - start))
    return times, answers


def _recall(found: Sequence[Evidence], truth: Sequence[Evidence]) -> float:
    """Share of the true passages that were found; one with the same kind and score stands for it (ties)."""
    hit = total = 0
    for a, b in zip(found, truth, strict=True):
        pool = [(p.kind, p.score) for p in a.passages]
        total += len(b.passages)
        for passage in b.passages:
            if (passage.kind, passage.score) in pool:
                pool.remove((passage.kind, passage.score))
                hit += 1
    return hit / total


def _same_score(found: Sequence[Evidence], truth: Sequence[Evidence]) -> float:
    """Share of the requests whose best score is the true one."""
    pairs = zip(found, truth, strict=True)
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


def show(result: dict[str, Any]) -> None:
    """Print one number a line."""
    for name, value in result.items():
        print(f"{name:60} {value:,.3f}" if isinstance(value, float) else f"{name:60} {value:,}", file=sys.stdout)
