"""Source (a): what a biomedical graph says of concepts that patients have together (Appendix B.1, KARE)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ghar.envs.kare.graph.concepts import ConceptSets, co_occurring
from ghar.envs.kare.graph.triples import Triple, concept_name
from ghar.kg.paths import PathGraph, PathSearch, facts_along
from ghar.progress import track

# What can become of a pair; one that is cut off may have been joined before.
FATES = ("joined", "without a path", "cut off by max_nodes", "of one node", "without a node")


@dataclass(frozen=True)
class GraphPart:
    """of: concept -> triples of its graph G^KG. without_node: concepts that no code links to a node, so that they have
    no such graph. pairs: what became of the pairs of concepts, by name."""

    of: dict[str, set[Triple]]
    without_node: tuple[str, ...]
    pairs: dict[str, int]


def graph_part(sets: ConceptSets, search: PathSearch, nodes: Mapping[str, int], top: int) -> GraphPart:
    """Join every concept with the `top` ones that occur most often beside it by shortest paths.

    nodes: code -> node of the graph; a concept's node is that of its first code which has one. A node that is a
    concept's is called by the concept's name (the first in the alphabet, in the graph of another concept).
    """
    node = {c: nodes[code] for c in sets.names for code in reversed(sets.codes[c]) if code in nodes}
    called = {node[concept]: concept for concept in reversed(sets.names) if concept in node}
    names = _FactNames(search.graph, called)
    pairs: dict[str, int] = dict.fromkeys(FATES, 0)
    cache: dict[tuple[int, int], tuple[np.ndarray, bool]] = {}
    of: dict[str, set[Triple]] = {}
    for concept, others in track(list(zip(sets.names, co_occurring(sets, top), strict=True)), "Join concepts by paths"):
        facts = [np.empty(0, np.int32)]
        for other in (sets.names[i] for i in others):
            if concept not in node or other not in node:
                pairs["without a node"] += 1
            elif node[concept] == node[other]:
                pairs["of one node"] += 1
            else:
                ends = min(node[concept], node[other]), max(node[concept], node[other])
                if ends not in cache:  # the search is the same from either end
                    paths = search.find(*ends)
                    cache[ends] = facts_along(search.graph, paths.paths), paths.complete
                path_facts, complete = cache[ends]
                facts.append(path_facts)
                pairs["joined" if len(path_facts) else "without a path"] += 1
                pairs["cut off by max_nodes"] += not complete
        own = {node[concept]: concept} if concept in node and called[node[concept]] != concept else {}
        of[concept] = set(names.triples(np.unique(np.concatenate(facts)).tolist(), own))
    without = tuple(concept for concept in sets.names if concept not in node)
    return GraphPart(of, without, pairs)


class _FactNames:
    """Facts in words; each node and each fact is put into words once."""

    def __init__(self, graph: PathGraph, called: Mapping[int, str]):
        self.graph = graph
        self.nodes = dict(called)
        self.relations = [concept_name(relation) for relation in graph.relations]
        self.triple_of: dict[int, Triple | None] = {}

    def triples(self, facts: Sequence[int], own: Mapping[int, str]) -> list[Triple]:
        """The facts in their true direction; those with a nameless part, or that say the same of two nodes with one
        name, are no triples. own: names that come first."""
        made = []
        for fact in facts:
            head, tail = int(self.graph.head[fact]), int(self.graph.tail[fact])
            if head in own or tail in own:
                made.append(self._words(fact, own.get(head) or self._node(head), own.get(tail) or self._node(tail)))
            else:
                if fact not in self.triple_of:
                    self.triple_of[fact] = self._words(fact, self._node(head), self._node(tail))
                made.append(self.triple_of[fact])
        return [triple for triple in made if triple is not None]

    def _words(self, fact: int, head: str, tail: str) -> Triple | None:
        triple = Triple(head, self.relations[self.graph.relation[fact]], tail)
        return triple if all(triple) and head != tail else None

    def _node(self, node: int) -> str:
        if node not in self.nodes:
            self.nodes[node] = concept_name(self.graph.names[node])
        return self.nodes[node]
