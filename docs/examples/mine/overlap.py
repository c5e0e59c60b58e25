"""A retriever: the edges of a graph that share most words with the query."""

from collections.abc import Sequence

from ghar.episode import Evidence, Passage, Retrieve
from ghar.kg.graph import KnowledgeGraph
from ghar.retrieval.texts import item_text


class Overlap:
    """Edges by the words of their texts."""

    def __init__(self, graph: KnowledgeGraph) -> None:
        self.paths = [graph.edges_of_path(path) for path in range(graph.num_paths)]
        self.texts = [item_text(graph, graph.num_nodes + edge) for edge in range(graph.num_edges)]
        self.words = [frozenset(text.lower().split()) for text in self.texts]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One answer a request, in order; partitions are numbers of meta-paths, None all of them."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Retrieve) -> Evidence:
        words = frozenset(request.query.lower().split())
        found: list[Passage] = []
        for path in range(len(self.paths)) if request.partitions is None else request.partitions:
            scored = [(len(words & self.words[edge]), -edge) for edge in self.paths[path]]
            best = sorted((one for one in scored if one[0]), reverse=True)[: request.top_n]
            found += [Passage(self.texts[-edge], "edge", path, float(score), -edge) for score, edge in best]
        return Evidence(tuple(sorted(found, key=lambda passage: (-passage.score, passage.ident))))


def build(graph: KnowledgeGraph) -> Overlap:
    """The retriever over the run's graph."""
    return Overlap(graph)
