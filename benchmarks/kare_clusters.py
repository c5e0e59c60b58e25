"""KARE's semantic clustering of 100,000 names (benchmarks/run.py kare_clusters).

Vectors of 128 dimensions are generated: names around concepts, concepts around topics, all sizes unequal, so that some
concepts are as near to each other as a name is to its own. Every run is a fresh process that tells its own peak memory
(VmHWM: everything resident, libraries included). Against scipy's average linkage with all distances, on fewer names:
agreement (adjusted Rand; 1 is the same clusters), seconds of both.
"""

from __future__ import annotations

import os
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

NAMES, DIMENSIONS = 100_000, 128
SMALL = 5_000  # names of the comparison: their distances take 100 MB, those of 100,000 would take 40 GB
PER_CONCEPT, PER_TOPIC = 3, 40  # names and concepts on average
SPREAD = 0.3, 0.9  # of names around a concept and of concepts around a topic, against topics of length 1
LIMIT = 3600.0  # seconds a run may take


def kare_clusters(seeds: int, *, share: float) -> dict[str, Any]:
    """Medians under seeds 0..seeds-1; share: of 100,000 names."""
    runs = []
    for seed in range(seeds):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            large = pool.submit(measure, round(NAMES * share), seed).result(timeout=LIMIT)
        runs.append(large | compare(SMALL, seed))
    result: dict[str, Any] = {name: float(np.median([run[name] for run in runs])) for name in runs[0]}
    result |= {"seeds": seeds, "runs": runs, "load average": os.getloadavg()[0]}
    return result


def measure(n: int, seed: int) -> dict[str, float]:
    """Threshold, clusters and representatives of n names, in this process."""
    from ghar.envs.kare.graph.clusters import cluster

    vectors = generated(n, seed)
    names = [f"name {i}" for i in range(n)]
    start, cpu = time.perf_counter(), time.process_time()
    clustering = cluster(names, vectors, seed=seed)
    return {
        "names": float(n),
        "seconds": time.perf_counter() - start,
        "CPU seconds": time.process_time() - cpu,
        "peak memory in GB": _peak_gb(),
        "threshold": clustering.threshold,
        "clusters": float(len(np.unique(clustering.representative))),
    }


def compare(n: int, seed: int) -> dict[str, float]:
    """The clusters of n names against those that scipy makes of all distances, at the threshold of the silhouette."""
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform
    from sklearn.metrics import adjusted_rand_score

    from ghar.envs.kare.graph.clusters import SAMPLE, THRESHOLDS, choose_threshold, cosine_distances
    from ghar.envs.kare.graph.linkage import average_linkage

    vectors = generated(n, seed)
    threshold = choose_threshold(vectors, thresholds=THRESHOLDS, sample=SAMPLE, seed=seed)
    start = time.perf_counter()
    ours = average_linkage(vectors, threshold, seed=seed, title="Cluster names")
    middle = time.perf_counter()
    exact = fcluster(linkage(squareform(cosine_distances(vectors), checks=False), "average"), threshold, "distance")
    end = time.perf_counter()
    return {
        f"{n} names: adjusted Rand against all distances": float(adjusted_rand_score(exact, ours)),
        f"{n} names: seconds": middle - start,
        f"{n} names: seconds with all distances": end - middle,
    }


def generated(n: int, seed: int) -> np.ndarray:
    """float32 [n, 128], rows of length 1."""
    rng = np.random.default_rng(seed)
    concepts = max(n // PER_CONCEPT, 1)
    topics = max(concepts // PER_TOPIC, 1)
    centres = _around(rng, rng.standard_normal((topics, DIMENSIONS)) / DIMENSIONS**0.5, concepts, SPREAD[1])
    vectors = _around(rng, centres, n, SPREAD[0])
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _around(rng: np.random.Generator, centres: np.ndarray, n: int, spread: float) -> np.ndarray:
    """n points, each at a centre drawn by unequal odds, at an own share of `spread` from it."""
    chosen = rng.choice(len(centres), n, p=rng.dirichlet(np.ones(len(centres))))
    steps = rng.standard_normal((n, DIMENSIONS)) / DIMENSIONS**0.5
    return centres[chosen] + spread * rng.uniform(0.2, 1.8, (n, 1)) * steps


def _peak_gb() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9
