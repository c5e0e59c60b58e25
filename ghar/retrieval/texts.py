"""The texts that are searched: every node and every edge of a graph in one numbering.

Item i < V is node i, item V + e is edge e. The edges of a meta-path are therefore consecutive items.
"""

from __future__ import annotations

import numpy as np

from ghar.kg.graph import KnowledgeGraph


def node_text(graph: KnowledgeGraph, node: int) -> str:
    """For example "metformin (drug)"."""
    return f"{graph.names[node]} ({graph.types[graph.type[node]]})"


def edge_text(graph: KnowledgeGraph, edge: int) -> str:
    """For example "metformin - indication - type 2 diabetes mellitus"."""
    head, tail = graph.names[int(graph.head[edge])], graph.names[int(graph.tail[edge])]
    return f"{head} - {graph.displays[graph.display[edge]]} - {tail}"


def item_text(graph: KnowledgeGraph, item: int) -> str:
    """The text of an item of the common numbering."""
    return node_text(graph, item) if item < graph.num_nodes else edge_text(graph, item - graph.num_nodes)


def first_items(graph: KnowledgeGraph) -> np.ndarray:
    """i64[V+E]: for each item the first item that has the same text (itself, nearly always)."""
    names = np.unique(np.asarray(graph.names[:], dtype=object).astype(str), return_inverse=True)[1]
    nodes = np.stack([names, graph.type, np.full(graph.num_nodes, -1)])
    edges = np.stack([names[graph.head], graph.display, names[graph.tail]])
    keys = np.concatenate([nodes, edges], axis=1)
    order = np.lexsort(keys)  # stable, so the first item of each group of equals leads it
    leads = np.ones(keys.shape[1], dtype=bool)
    leads[1:] = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    first = np.empty(keys.shape[1], dtype=np.int64)
    first[order] = order[np.flatnonzero(leads)][np.cumsum(leads) - 1]
    return first
