"""Cohorts: communities of the patient graph.

leiden    modularity (Eq. 3, GraphWalker) of the graph without weights, by Leiden (Traag et al. 2019)
louvain   the same objective, by Louvain (Blondel et al. 2008): the ablation of Table 2
released  what GraphWalker's released code runs: Leiden on edges weighted by cosine (at least FLOOR) against the
          expectation of a random graph of the same density, sum over pairs of one cohort of w_ij - resolution * p, with
          p = sum of weights / pairs (leidenalg's RBERVertexPartition; the Constant Potts Model at resolution * p)
"""

from __future__ import annotations

from typing import Literal

import numpy as np

Method = Literal["leiden", "louvain", "released"]
FLOOR = 1e-6  # weight of an edge between patients who are not alike at all
ITERATIONS = 2  # whole cycles of Leiden, as the released code runs; the paper does not say


def find_cohorts(
    starts: np.ndarray,
    neighbours: np.ndarray,
    cosines: np.ndarray,
    resolution: float,
    method: Method,
    seed: int,
) -> np.ndarray:
    """int64 [n]: cohort of each patient, numbered in the order of their first patients.

    starts, neighbours, cosines: a symmetric graph in CSR without loops.
    """
    if method == "louvain":
        labels = _louvain(starts, neighbours, resolution, seed)
    else:
        weights = np.ones(len(neighbours))
        if method == "released":
            weights = np.maximum(cosines, FLOOR).astype(np.float64)
            # Scaled to a sum of 1: with larger weights the library's refinement step merges nothing (measured).
            weights /= weights.sum()
            resolution /= (len(starts) - 1) * (len(starts) - 2)
        labels = _leiden(starts, neighbours, weights, resolution, method == "leiden", seed)
    first = np.unique(labels, return_index=True, return_inverse=True)[1:]
    return np.argsort(np.argsort(first[0]))[first[1]]


def _leiden(
    starts: np.ndarray, neighbours: np.ndarray, weights: np.ndarray, resolution: float, modularity: bool, seed: int
) -> np.ndarray:
    from graspologic_native import leiden_csr  # pyright: ignore[reportAttributeAccessIssue] (compiled, untyped)

    n = len(starts) - 1
    graph = starts.astype(np.int64), neighbours.astype(np.int32), weights, n
    _, labels = leiden_csr(*graph, resolution=resolution, iterations=ITERATIONS, use_modularity=modularity, seed=seed)
    return np.array([labels[i] for i in range(n)])


def _louvain(starts: np.ndarray, neighbours: np.ndarray, resolution: float, seed: int) -> np.ndarray:
    import networkx as nx

    heads = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    graph = nx.Graph()
    graph.add_nodes_from(range(len(starts) - 1))
    graph.add_edges_from(zip(heads.tolist(), neighbours.tolist(), strict=True))
    labels = np.empty(len(starts) - 1, np.int64)
    for label, members in enumerate(nx.community.louvain_communities(graph, resolution=resolution, seed=seed)):
        labels[list(members)] = label
    return labels
