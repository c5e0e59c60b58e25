"""A patient's graph G_p (Eq. 2, KARE)."""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.cohort import Visit
from ghar.envs.kare.graph.clusters import Clusters
from ghar.envs.kare.graph.triples import ConceptGraphs, Triple, union
from ghar.envs.kare.retrieval.patient_graph import concept_nodes, patient_graph

NAMES = ("a", "b", "c", "d", "e", "f")
ENTITIES = ("a", "c", "d", "e", "f")
CLUSTERS = Clusters(NAMES, np.array([0, 0, 2, 3, 4, 5], np.int32), 0.14)  # b is another name of a


def visit(number: int, *codes: str) -> Visit:
    return Visit(number, datetime(2150, 1, 1 + number), codes[::3], codes[1::3], codes[2::3])


def graphs_of(of: dict[str, list[tuple[str, str, str]]]) -> ConceptGraphs:
    return union({"graph": {concept: [Triple(*t) for t in triples] for concept, triples in of.items()}})


def test_latest_visit_counts_and_indirect_nodes_are_the_rest() -> None:
    graphs = graphs_of({"a": [("a", "r", "d")], "b": [("a", "r", "e")], "c": [("c", "r", "d"), ("d", "r", "f")]})
    nodes = concept_nodes(graphs, CLUSTERS, ENTITIES)
    history = [visit(0, "C", "A", "lost"), visit(1, "B"), visit(2, "A"), visit(3)]
    graph = patient_graph(history, str.lower, nodes)
    assert [ENTITIES[i] for i in graph.direct] == ["a", "c"]
    assert graph.visit.tolist() == [2, 0]
    assert [ENTITIES[i] for i in graph.indirect] == ["d", "e", "f"]
    assert graph.unknown == ("lost",)


def test_a_concept_is_direct_only_where_some_graph_of_the_patient_holds_it() -> None:
    graphs = graphs_of({"a": [("d", "r", "e")], "c": [("a", "r", "f")]})
    nodes = concept_nodes(graphs, CLUSTERS, ENTITIES)
    assert patient_graph([visit(0, "a")], str, nodes).direct.tolist() == []
    both = patient_graph([visit(0, "a", "c")], str, nodes)
    assert [ENTITIES[i] for i in both.direct] == ["a"]
    assert both.unknown == ("c",)


def test_nobody_knows_anything() -> None:
    graph = patient_graph([visit(0, "x", "y")], str, concept_nodes(graphs_of({"x": []}), CLUSTERS, ENTITIES))
    assert (len(graph.direct), len(graph.indirect), graph.unknown) == (0, 0, ("x", "y"))
    assert patient_graph([], str, concept_nodes(graphs_of({}), CLUSTERS, ENTITIES)).unknown == ()


codes = st.lists(st.sampled_from(NAMES), max_size=5)
triples = st.lists(st.tuples(st.sampled_from(ENTITIES), st.just("r"), st.sampled_from(ENTITIES)), max_size=4)


@pytest.mark.slow
@settings(max_examples=200)
@given(st.lists(codes, max_size=4), st.dictionaries(st.sampled_from(NAMES), triples))
def test_like_eq_2_on_sets(history: list[list[str]], of: dict[str, list[tuple[str, str, str]]]) -> None:
    nodes = concept_nodes(graphs_of(of), CLUSTERS, ENTITIES)
    graph = patient_graph([visit(i, *codes) for i, codes in enumerate(history)], str, nodes)
    graph_p = {name for codes in history for code in codes for h, _, t in of.get(code, []) for name in (h, t)}
    own = {CLUSTERS.map(code) for codes in history for code in codes if code in of}
    assert {ENTITIES[i] for i in graph.direct} == graph_p & own
    assert {ENTITIES[i] for i in graph.indirect} == graph_p - own
    for node, index in zip(graph.direct, graph.visit, strict=True):
        last = max(i for i, codes in enumerate(history) for c in codes if c in of and CLUSTERS.map(c) == ENTITIES[node])
        assert index == last
