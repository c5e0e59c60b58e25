"""Retrieval inside meta-path partitions (Eq. 10, GHAR)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ghar.episode import Evidence, Passage, Retrieve
from ghar.kg.graph import KnowledgeGraph
from ghar.retrieval.inverted_lists import EDGES, NODES, InvertedLists
from ghar.retrieval.texts import item_text

WHOLE_GRAPH = -1


class Index(Protocol):
    """Ranks items (numbered as in texts.py) for queries. Encoding is separate, so that a query is encoded once."""

    def encode(self, queries: Sequence[str]) -> Sequence[Any]: ...

    def search(
        self, queries: Sequence[Any], items: range | np.ndarray, top_n: int
    ) -> list[tuple[np.ndarray, np.ndarray]]: ...


@dataclass(frozen=True, eq=False)
class PartitionRetriever:
    """G_sub of Eq. 10: the union over partitions i of the top-N nodes and the top-N edges of G_i for a query.

    lists: with a dense index, where large partitions are searched approximately, `probes` lists each; None is exact.
    """

    graph: KnowledgeGraph
    index: Index
    lists: InvertedLists | None = None
    probes: int = 1

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One `Evidence` per request, in order; requests share encoding and searches, results do not depend on it.

        Passages come by score (rounded to 5 decimals), highest first, ties by (kind, ident); of passages with the
        same text the first stays. `partitions=None` searches the whole graph as one partition (the NM ablation).
        TF-IDF and BM25 return no passage that shares no word with the query.
        """
        numbers = {query: i for i, query in enumerate(dict.fromkeys(r.query for r in requests))}
        groups: dict[tuple[int, int], dict[int, None]] = defaultdict(dict)
        for request in requests:
            self.check(request)
            for partition in _partitions(request):
                groups[partition, request.top_n][numbers[request.query]] = None
        encoded = self.index.encode(list(numbers)) if groups else []
        results: dict[tuple[int, int, int], list[Passage]] = {}
        for (partition, top_n), members in groups.items():
            passages = self._search(partition, [encoded[i] for i in members], top_n)
            results.update({(partition, top_n, i): p for i, p in zip(members, passages, strict=True)})
        return [
            merge([results[partition, r.top_n, numbers[r.query]] for partition in _partitions(r)]) for r in requests
        ]

    def check(self, request: Retrieve) -> None:
        """`ValueError` for a request that cannot be answered."""
        if request.top_n < 1:
            raise ValueError(f"top_n is {request.top_n}; ask for at least 1")
        unknown = [p for p in request.partitions or () if not 0 <= p < self.graph.num_paths]
        if unknown:
            raise ValueError(f"meta-path {unknown[0]} does not exist; ids run from 0 to {self.graph.num_paths - 1}")

    def _search(self, partition: int, queries: Sequence[Any], top_n: int) -> list[list[Passage]]:
        """Φ_nodes and Φ_edges of one partition for some encoded queries."""
        num_nodes = self.graph.num_nodes
        nodes, edges = range(num_nodes), range(self.graph.num_edges)
        if partition != WHOLE_GRAPH:
            nodes, edges = self.graph.nodes_of_path(partition), self.graph.edges_of_path(partition)
        edge_items = range(num_nodes + edges.start, num_nodes + edges.stop)
        passages: list[list[Passage]] = [[] for _ in queries]
        for kind, part, items, offset in (("node", NODES, nodes, 0), ("edge", EDGES, edge_items, num_nodes)):
            for i, (hits, scores) in enumerate(self._best((partition, part), queries, items, top_n)):
                passages[i] += [
                    Passage(item_text(self.graph, item), kind, partition, score, item - offset)
                    for item, score in zip(hits.tolist(), scores.tolist(), strict=True)
                ]
        return passages

    def _best(
        self, part: tuple[int, int], queries: Sequence[Any], items: range | np.ndarray, top_n: int
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Each query's best items of a partition's nodes or edges: through its lists where it has some."""
        if self.lists is None or not self.lists.has(part):
            return self.index.search(queries, items, top_n)
        wanted = [self.lists.candidates(part, query, self.probes, top_n) for query in queries]
        return [self.index.search([query], own, top_n)[0] for query, own in zip(queries, wanted, strict=True)]


def _partitions(request: Retrieve) -> tuple[int, ...]:
    return (WHOLE_GRAPH,) if request.partitions is None else tuple(dict.fromkeys(request.partitions))


def merge(groups: Sequence[Sequence[Passage]]) -> Evidence:
    """One evidence from the passages of several partitions, in the order and without the repetitions of `retrieve`."""
    passages = sorted((p for group in groups for p in group), key=lambda p: (-p.score, p.kind, p.ident, p.partition))
    first: dict[str, Passage] = {}
    for passage in passages:
        first.setdefault(passage.text, passage)
    return Evidence(tuple(first.values()))
