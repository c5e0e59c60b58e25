"""The texts that are searched: every node and every edge of a graph in one numbering.

Item i < V is node i, item V + e is edge e. The edges of a meta-path are therefore consecutive items.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ghar.kg.graph import KnowledgeGraph


def node_text(graph: KnowledgeGraph, node: int) -> str:
    """For example "metformin (drug)"."""
    return typed(graph.names[node], graph.types[graph.type[node]])


def typed(name: str, kind: str) -> str:
    """A name with its type, once: PrimeKG has diseases whose names end with it ("malaria (disease)")."""
    return f"{untyped(name, kind)} ({kind})"


def untyped(name: str, kind: str) -> str:
    """A name without the type that it may end with."""
    return name.removesuffix(f" ({kind})")


def edge_text(graph: KnowledgeGraph, edge: int) -> str:
    """For example "metformin - indication - type 2 diabetes mellitus"."""
    head, tail = graph.names[int(graph.head[edge])], graph.names[int(graph.tail[edge])]
    return f"{head} - {graph.displays[graph.display[edge]]} - {tail}"


def item_text(graph: KnowledgeGraph, item: int) -> str:
    """The text of an item of the common numbering."""
    return node_text(graph, item) if item < graph.num_nodes else edge_text(graph, item - graph.num_nodes)


def bulk_texts(graph: KnowledgeGraph) -> Callable[[np.ndarray], list[str]]:
    """`item_text` for many items at once: reads all names into memory and gives the function from items to texts."""
    names = graph.names[:]
    kinds = [graph.types[t] for t in graph.type.tolist()]

    def texts(items: np.ndarray) -> list[str]:
        nodes = items[items < graph.num_nodes].tolist()
        edges = items[items >= graph.num_nodes] - graph.num_nodes
        ends = zip(*(column[edges].tolist() for column in (graph.head, graph.display, graph.tail)), strict=True)
        made = [typed(names[node], kinds[node]) for node in nodes]
        return made + [f"{names[head]} - {graph.displays[display]} - {names[tail]}" for head, display, tail in ends]

    return texts


def first_items(graph: KnowledgeGraph) -> np.ndarray:
    """i64[V+E]: for each item the first item that has the same text (itself, nearly always)."""
    written = graph.names[:]
    names, of_name = _numbered(written)
    kinds = (graph.types[t] for t in graph.type.tolist())
    bare, of_bare = _numbered([untyped(name, kind) for name, kind in zip(written, kinds, strict=True)])
    # One whole number per text: equal for equal parts, edges above all nodes.
    nodes = of_bare * len(graph.types) + graph.type
    edges = (of_name[graph.head] * len(graph.displays) + graph.display) * names + of_name[graph.tail]
    keys = np.concatenate([nodes, edges + bare * len(graph.types)])
    _, first, number = np.unique(keys, return_index=True, return_inverse=True)
    return first[number]


def _numbered(names: Sequence[str]) -> tuple[int, np.ndarray]:
    """How many different names there are, and the number of each: equal names have equal ones."""
    distinct, numbers = np.unique(np.asarray(names, dtype=object).astype(str), return_inverse=True)
    return len(distinct), numbers
