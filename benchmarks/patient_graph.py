"""The patient graph of 100,000 patients: exact k-NN graph and Leiden, then 1% more patients (benchmarks/run.py
patient_graph).

Vectors are generated: clusters of very different sizes around random centres, 128 dimensions. Every run is a fresh
process that loads the vectors from a file, on two threads, and tells its own peak memory (VmHWM: everything resident,
libraries included).
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

PATIENTS, DIMENSIONS, CLUSTERS = 100_000, 128, 200
MORE = 0.01  # patients added afterwards, as a share
THREADS = 2
LIMIT = 3600.0  # seconds a run may take


def patient_graph(folder: Path, seeds: int, *, share: float) -> dict[str, Any]:
    """Medians under seeds 0..seeds-1; share: of 100,000 patients."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = []
    for seed in range(seeds):
        path = folder / f"vectors-seed{seed}.npz"
        vectors, clusters = clustered(round(PATIENTS * share), seed)
        np.savez(path, vectors=vectors, clusters=clusters)
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                runs.append(pool.submit(measure, path, seed).result(timeout=LIMIT))
        finally:
            path.unlink()
    result: dict[str, Any] = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
    result |= {"seeds": seeds, "runs": runs, "load average": os.getloadavg()[0]}
    return result


def measure(path: Path, seed: int) -> dict[str, float]:
    """One run, in this process."""
    import faiss

    from ghar.envs.graphwalker.selectors.cohorts import find_cohorts
    from ghar.envs.graphwalker.selectors.graph import add, build_graph, symmetrised

    faiss.omp_set_num_threads(THREADS)
    with np.load(path) as file:
        vectors, clusters = file["vectors"], file["clusters"]
    n = len(vectors)
    ids, old = [str(i) for i in range(n)], n - max(round(MORE * n), 1)
    start, cpu = time.perf_counter(), time.process_time()
    graph = build_graph(vectors, ids, seed=seed)
    result = {"graph and cohorts, seconds": time.perf_counter() - start, "CPU seconds": time.process_time() - cpu}
    result["peak memory in GB"] = _peak_gb()
    parts = symmetrised(graph.near, graph.closeness)
    start = time.perf_counter()
    find_cohorts(*parts, graph.resolution, graph.method, seed)
    result["of which Leiden, seconds"] = time.perf_counter() - start
    result |= {"cohorts": float(len(graph.prototypes)), "edges": len(graph.neighbours) / 2}
    result["agreement with the generated clusters (adjusted Rand)"] = _agreement(graph.cohorts, clusters)
    first = build_graph(vectors[:old], ids[:old], seed=seed)
    start = time.perf_counter()
    grown = add(first, vectors[old:], ids[old:])
    result[f"adding {n - old} patients, seconds"] = time.perf_counter() - start
    same = np.array_equal(grown.near, graph.near) and np.array_equal(grown.cohorts, graph.cohorts)
    result["the same as built anew"] = float(same)
    return result


def clustered(patients: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """float32 [patients, 128] and the cluster of each; sizes as unequal as a Dirichlet law with weight 1 makes them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((CLUSTERS, DIMENSIONS))
    clusters = rng.choice(CLUSTERS, patients, p=rng.dirichlet(np.ones(CLUSTERS)))
    vectors = rng.standard_normal((patients, DIMENSIONS), dtype=np.float32)
    vectors += centres[clusters]
    return vectors, clusters


def _agreement(a: np.ndarray, b: np.ndarray) -> float:
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(a, b))


def _peak_gb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9
