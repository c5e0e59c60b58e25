"""KARE's graph construction at the paper's size (benchmarks/run.py kare_graph): concept-set filter and path search.

Sets: 44,000 visits over 700 concepts, as many codes a visit as MIMIC-III's (15 conditions, 4 procedures, 35 drugs;
Table 1 of the paper), concepts as unequal in frequency as words are, two fifths of the visits changed copies of an
earlier one. The survivors are compared with the rule itself, evaluated on multi-hot vectors, all of them.

Paths: graphs of a million edges, one whose nodes are alike (200,000 nodes) and one with hubs (125,000 nodes, of which a
few have thousands of neighbours, as in PrimeKG); pairs of nodes with a neighbour, one search each, with the paper's
limits. Of some pairs everything is checked: paths exist, are simple, different and in order, and all the shortest ones
are there (counted by breadth-first search from one end).
"""

from __future__ import annotations

import os
import time
from itertools import pairwise
from typing import Any

import numpy as np

from ghar.envs.kare.graph.build import SIMILAR
from ghar.envs.kare.graph.concepts import ConceptSets
from ghar.envs.kare.graph.near_duplicates import keep_different
from ghar.kg.paths import PathGraph, PathSearch, make_path_graph
from ghar.progress import track

SETS, CONCEPTS, MEAN, SPREAD = 44_000, 700, 54.0, 0.5  # spread: of the logarithm of the number of concepts
COPIES, CHANGED = 0.4, 6  # share of copies, most concepts exchanged in one
EDGES = 1_000_000
GRAPHS = {"alike": (200_000, 1.0), "hubs": (125_000, 2.5)}  # nodes; a node's rank is drawn as count * uniform ** skew
LIMITS = {"max_length": 7, "max_paths": 40, "max_nodes": 12_000}
PAIRS, CHECKED = 1_000, 10
BLOCK = 500


def kare_graph(*, share: float, seed: int) -> dict[str, Any]:
    """Numbers of `share` of 44,000 sets and of a million edges."""
    result = filter_sets(generated_sets(round(SETS * share), seed))
    for name, (nodes, skew) in GRAPHS.items():
        graph = generated_graph(round(nodes * share), round(EDGES * share), skew, seed)
        result |= {f"{name}: {what}": value for what, value in search_paths(graph, seed, name).items()}
    result |= {"seed": seed, "load average": os.getloadavg()[0]}
    return result


def generated_sets(count: int, seed: int) -> ConceptSets:
    """`count` sets over CONCEPTS concepts. The same seed, the same sets."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
    frequency = np.log(1 / np.arange(5, CONCEPTS + 5))
    sizes = np.clip(rng.lognormal(np.log(MEAN) - SPREAD**2 / 2, SPREAD, count), 1, CONCEPTS // 2).astype(int)
    sets: list[np.ndarray] = []
    for i, size in enumerate(sizes.tolist()):
        if i and rng.random() < COPIES:
            changed = rng.integers(0, CONCEPTS, rng.integers(0, CHANGED + 1))
            chosen = np.setxor1d(sets[rng.integers(i)], changed)
        else:  # the largest of log-weights plus Gumbel noise: weighted draws without repetition
            chosen = np.argpartition(-(frequency + rng.gumbel(size=CONCEPTS)), size)[:size]
        sets.append(np.sort(chosen).astype(np.int32))
    names = tuple(f"concept {i:03}" for i in range(CONCEPTS))
    start = np.cumsum([0, *map(len, sets)])
    return ConceptSets(names, start, np.concatenate(sets), np.arange(count), {name: (name,) for name in names})


def filter_sets(sets: ConceptSets) -> dict[str, Any]:
    """Seconds of the filter and of the rule itself, and how many sets they disagree on."""
    began, cpu = time.perf_counter(), time.process_time()
    kept = keep_different(sets, SIMILAR)
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    began = time.perf_counter()
    direct = keep_directly(sets, SIMILAR)
    return {
        "sets": len(sets),
        "sets that stay": len(kept),
        "filter, seconds": seconds,
        "filter, CPU seconds": used,
        "rule on multi-hot vectors, seconds": time.perf_counter() - began,
        "sets on which filter and rule differ": len(np.setxor1d(kept, direct)),
    }


def keep_directly(sets: ConceptSets, threshold: int) -> np.ndarray:
    """The rule of envs/kare/graph/near_duplicates.py, every pair compared."""
    hot = np.zeros((len(sets), len(sets.names)), np.float32)
    hot[np.repeat(np.arange(len(sets)), np.diff(sets.start)), sets.concept] = 1
    size = hot.sum(axis=1)
    kept, count = np.empty(len(sets), np.int64), 0
    before = np.empty_like(hot)  # the vectors of the kept ones, in one piece
    for begin in track(range(0, len(sets), BLOCK), "Compare all pairs of sets"):
        rows = np.arange(begin, min(begin + BLOCK, len(sets)))
        apart = size[rows][:, None] + size[kept[:count]] - 2 * hot[rows] @ before[:count].T
        near = (apart < threshold).any(axis=1)
        among = size[rows][:, None] + size[rows] - 2 * hot[rows] @ hot[rows].T < threshold
        new: list[int] = []
        for i in np.flatnonzero(~near).tolist():
            if not among[i, new].any():
                new.append(i)
        kept[count : count + len(new)] = rows[new]
        before[count : count + len(new)] = hot[rows[new]]
        count += len(new)
    return kept[:count]


def generated_graph(nodes: int, edges: int, skew: float, seed: int) -> PathGraph:
    """A graph of exactly `edges` different edges between different nodes."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    pairs = np.empty(0, np.int64)
    while len(pairs) < edges:
        a, b = np.floor(nodes * rng.random((2, edges - len(pairs) + 1_000)) ** skew).astype(np.int64)
        pairs = np.unique(np.concatenate([pairs, (np.minimum(a, b) * nodes + np.maximum(a, b))[a != b]]))
    pairs = rng.permutation(pairs)[:edges]
    name = rng.permutation(nodes)  # so that numbers say nothing about degrees
    return make_path_graph([""] * nodes, ["r"], name[pairs // nodes], name[pairs % nodes], np.zeros(edges, np.int64))


def search_paths(graph: PathGraph, seed: int, name: str) -> dict[str, Any]:
    """Milliseconds of a search, and what is wrong with the paths of the first pairs."""
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(2,)))
    search = PathSearch(graph, **LIMITS)
    pairs = rng.choice(np.flatnonzero(graph.degree), (PAIRS, 2)).tolist()
    search.find(*pairs[0])
    wall, cpu, numbers, wrong, cut = [], [], [], 0, 0
    for place, (a, b) in enumerate(track(pairs, f"Search paths ({name})")):
        began, used = time.perf_counter(), time.process_time()
        result = search.find(a, b)
        wall.append(1000 * (time.perf_counter() - began))
        cpu.append(1000 * (time.process_time() - used))
        numbers.append(len(result.paths))
        cut += not result.complete
        if place < CHECKED:
            wrong += faults(graph, a, b, result.paths)
    percentiles = {f"search, p{q} ms": float(np.percentile(wall, q)) for q in (50, 90, 99)}
    return {
        "nodes": len(graph.names),
        "edges": len(graph.pair),
        "most neighbours of a node": int(graph.degree.max()),
        **percentiles,
        "search, p50 CPU ms": float(np.median(cpu)),
        "paths a pair": float(np.mean(numbers)),
        "pairs without a path": numbers.count(0),
        "pairs cut off by max_nodes": cut,
        "pairs checked": min(CHECKED, len(pairs)),
        "faults in their paths": wrong,
    }


def faults(graph: PathGraph, first: int, last: int, paths: tuple[tuple[int, ...], ...]) -> int:
    """How many rules the paths of a pair break; 1 more where a shortest one is missing."""
    count = 0
    for path in paths:
        steps = all(b in graph.near[graph.start[a] : graph.start[a + 1]] for a, b in pairwise(path))
        count += not (path[0] == first and path[-1] == last and steps and len(set(path)) == len(path))
    count += len(set(paths)) < len(paths)
    count += list(paths) != sorted(paths, key=lambda path: (len(path), path))
    length, ways = shortest(graph, first, last)
    wanted = min(ways, LIMITS["max_paths"]) if length <= LIMITS["max_length"] else 0
    return count + (sum(len(path) - 1 == length for path in paths) != wanted)


def shortest(graph: PathGraph, first: int, last: int) -> tuple[float, int]:
    """Edges of a shortest path (infinite: there is none) and how many such paths there are."""
    if first == last:
        return np.inf, 0
    ways = np.zeros(len(graph.names))
    ways[first] = 1
    reached, here, length = np.zeros(len(graph.names), bool), np.array([first]), 0
    while len(here):
        length += 1
        reached[here] = True
        near = np.concatenate([graph.near[graph.start[v] : graph.start[v + 1]] for v in here.tolist()])
        came = np.repeat(here, graph.degree[here])[~reached[near]]
        near = near[~reached[near]]
        np.add.at(ways, near, ways[came])
        if ways[last]:
            return length, int(ways[last])
        here = np.unique(near)
    return np.inf, 0
