"""Which drugs a graph's contraindication edges rule out for a disease, and the disease's parents (PrimeKG)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph

CONTRAINDICATION, HIERARCHY = "contraindication", "disease_disease"
NAMED = 5  # relations that an error lists


@dataclass(frozen=True)
class Contraindications:
    """drugs: disease node -> contraindicated drug nodes. relatives: disease node -> nodes one parent-child edge away;
    parents: those of them that are its parents."""

    drugs: Mapping[int, frozenset[int]]
    relatives: Mapping[int, frozenset[int]]
    parents: Mapping[int, frozenset[int]]

    def degrees(self) -> dict[int, int]:
        """Number of contraindication edges of each drug."""
        return dict(Counter(drug for drugs in self.drugs.values() for drug in drugs))


def contraindications(graph: KnowledgeGraph) -> Contraindications:
    """Read the contraindication edges between diseases or phenotypes and drugs, and the hierarchy of diseases.

    PrimeKG lists a parent-child edge in both directions and does not say which end is the parent. The end with more
    such edges counts as the parent; between equals no one does. BadInput for a graph without contraindication edges.
    """
    drugs: dict[int, set[int]] = defaultdict(set)
    relatives: dict[int, set[int]] = defaultdict(set)
    drug = graph.types.index("drug") if "drug" in graph.types else -1
    for path, relation in enumerate(graph.path_relation):
        for edge in graph.edges_of_path(path) if relation in (CONTRAINDICATION, HIERARCHY) else ():
            head, tail = int(graph.head[edge]), int(graph.tail[edge])
            if relation == HIERARCHY:
                relatives[head].add(tail)
                relatives[tail].add(head)
            elif (graph.type[head] == drug) != (graph.type[tail] == drug):
                disease, other = (tail, head) if graph.type[head] == drug else (head, tail)
                drugs[disease].add(other)
    if not drugs:
        others = Counter({name: 0 for name in graph.path_relation})
        for path, relation in enumerate(graph.path_relation):
            others[relation] += len(graph.edges_of_path(path))
        there = ", ".join(f"{name} {count:,}" for name, count in others.most_common(NAMED))
        raise BadInput(
            f"The graph has 0 contraindication edges between a drug and a disease among its {graph.num_edges:,} edges "
            f"({there}): set kg.path to a graph that has some, as PrimeKG does."
        )
    parents = {
        node: frozenset(other for other in own if len(relatives[other]) > len(own)) for node, own in relatives.items()
    }
    return Contraindications(_frozen(drugs), _frozen(relatives), parents)


def _frozen(sets: Mapping[int, set[int]]) -> dict[int, frozenset[int]]:
    return {node: frozenset(own) for node, own in sets.items()}
