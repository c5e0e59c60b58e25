"""A patient's knowledge graph G_p, as the nodes that communities are compared with (Eq. 2, KARE).

G_p is the union of the concept graphs of every concept in the visible history. Its nodes that are a concept of the
record themselves are direct, the others indirect. A concept that recurs has the index of its latest visit, visits
counted from 0 as the base context does. A concept that no source knows has no node; it is named in `unknown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ghar.envs.kare.graph.clusters import Clusters
from ghar.envs.kare.graph.concepts import CodedVisit
from ghar.envs.kare.graph.triples import ConceptGraphs, concept_name


@dataclass(frozen=True, eq=False)
class PatientKnowledgeGraph:
    """Nodes are rows of a sorted list of entities, each in one set and once.

    direct i64[D], ascending; visit i64[D]: index of the latest visit of each; indirect i64[I], ascending.
    unknown: concepts of the record without a node, in the order of the record.
    """

    direct: np.ndarray
    visit: np.ndarray
    indirect: np.ndarray
    unknown: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class ConceptNodes:
    """own: concept -> its node, where it has one. around: concept -> nodes of its graph, ascending."""

    own: Mapping[str, int]
    around: Mapping[str, np.ndarray]


def concept_nodes(graphs: ConceptGraphs, clusters: Clusters, entities: Sequence[str]) -> ConceptNodes:
    """From the rewritten graphs (their entities are representatives already), once for all patients.

    clusters: φ_e, of the entities' names before. entities: those of the communities, sorted; a node that is in no
    community tells nothing about any and is left out.
    """
    number, clustered = {name: i for i, name in enumerate(entities)}, set(clusters.names)
    own, around = {}, {}
    for concept, ids in graphs.of.items():
        names = {name for i in ids.tolist() for name in (graphs.triples[i].head, graphs.triples[i].tail)}
        around[concept] = np.array(sorted(number[name] for name in names if name in number), np.int64)
        node = number.get(clusters.map(concept)) if concept in clustered else None
        if node is not None:
            own[concept] = node
    return ConceptNodes(own, around)


def patient_graph(
    history: Sequence[CodedVisit], name_of: Callable[[str], str], nodes: ConceptNodes
) -> PatientKnowledgeGraph:
    """G_p of the visits that a sample shows, oldest first. name_of: code -> name, as texts show it."""
    latest: dict[str, int] = {}
    for index, visit in enumerate(history):
        for code in (*visit.diagnoses, *visit.procedures, *visit.medications):
            latest[concept_name(name_of(code))] = index
    graphs = [nodes.around[concept] for concept in latest if concept in nodes.around]
    everything = np.unique(np.concatenate([np.empty(0, np.int64), *graphs]))
    present = set(everything.tolist())
    visit_of: dict[int, int] = {}
    for concept, index in latest.items():
        node = nodes.own.get(concept)
        if node is not None and node in present:
            visit_of[node] = max(index, visit_of.get(node, 0))  # several concepts may be one after clustering
    direct = np.array(sorted(visit_of), np.int64)
    visits = np.array([visit_of[node] for node in direct.tolist()], np.int64)
    unknown = tuple(concept for concept in latest if nodes.own.get(concept) not in present)
    return PatientKnowledgeGraph(direct, visits, np.setdiff1d(everything, direct, assume_unique=True), unknown)
