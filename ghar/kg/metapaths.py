"""Meta-paths: the partitions of a knowledge graph among which Agent-Top chooses (Section III-A, GHAR)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ghar.kg.graph import KnowledgeGraph


@dataclass(frozen=True)
class MetaPath:
    """One element of O_meta. `index` is its id 0..X-1, `label` how its relation is read aloud."""

    index: int
    head_type: str
    relation: str
    tail_type: str
    label: str

    @property
    def text(self) -> str:
        return f"{self.head_type} - {self.label} - {self.tail_type}"


def metapaths(graph: KnowledgeGraph) -> tuple[MetaPath, ...]:
    """All meta-paths of a graph, by id.

    The label is the display relation when all edges of the path share it, and this leaves no two paths with the same
    text; otherwise it is the relation.
    """
    labels = []
    for p in range(graph.num_paths):
        edges = graph.edges_of_path(p)
        display_ids = np.unique(graph.display[edges.start : edges.stop])
        labels.append(graph.displays[display_ids[0]] if len(display_ids) == 1 else graph.path_relation[p])
    ends = [(graph.types[h], graph.types[t]) for h, t in zip(graph.path_head, graph.path_tail, strict=True)]
    texts = [(head, label, tail) for (head, tail), label in zip(ends, labels, strict=True)]
    return tuple(
        MetaPath(p, head, graph.path_relation[p], tail, label if texts.count(text) == 1 else graph.path_relation[p])
        for p, ((head, tail), label, text) in enumerate(zip(ends, labels, texts, strict=True))
    )
