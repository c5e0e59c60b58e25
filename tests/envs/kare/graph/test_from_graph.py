import networkx as nx
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.envs.kare.graph.concepts import ConceptSets, co_occurring
from ghar.envs.kare.graph.from_engine import around
from ghar.envs.kare.graph.from_graph import graph_part
from ghar.envs.kare.graph.triples import Triple
from ghar.kg.paths import PathSearch, make_path_graph

NAMES = ["Gout", "Urate!", "Kidney", "Allopurinol", "Zyloprim brand", "Sand"]
FACTS = [(1, 0, 0), (1, 1, 2), (3, 2, 0), (3, 3, 0), (2, 1, 1), (4, 4, 3)]
RELATIONS = ["causes", "harms", "treats", "is given in", "is a brand of"]


def search(max_nodes: int = 12_000) -> PathSearch:
    head, relation, tail = np.array(FACTS).T
    graph = make_path_graph(NAMES, RELATIONS, head, tail, relation)
    return PathSearch(graph, max_length=7, max_paths=40, max_nodes=max_nodes)


def visits(*sets: list[str], codes: dict[str, tuple[str, ...]] | None = None) -> ConceptSets:
    names = tuple(sorted({name for concepts in sets for name in concepts}))
    concept = np.array([c for concepts in sets for c in sorted(map(names.index, concepts))], np.int32)
    start = np.cumsum([0, *map(len, sets)])
    own = {name: (f"C/{name}",) for name in names} | (codes or {})
    return ConceptSets(names, start, concept, np.arange(len(sets)), own)


def test_paths_become_triples_that_keep_their_roles() -> None:
    part = graph_part(visits(["gout", "kidney"]), search(), {"C/gout": 0, "C/kidney": 2}, 20)
    path = {("urate", "causes", "gout"), ("urate", "harms", "kidney"), ("kidney", "harms", "urate")}
    assert part.of == {"gout": path, "kidney": path}
    assert part.pairs["joined"] == 2 and sum(part.pairs.values()) == 2
    assert part.without_node == ()


def test_a_concept_is_called_by_its_own_name_and_none_is_skipped() -> None:
    sets = visits(["painful toe", "my pill", "sand", "unknown", "gout"], codes={"my pill": ("C/none", "C/pill")})
    nodes = {"C/gout": 0, "C/painful toe": 0, "C/pill": 3, "C/sand": 5}
    part = graph_part(sets, search(), nodes, 20)
    own = {Triple("my pill", relation, "painful toe") for relation in ("treats", "is given in")}
    assert part.of["painful toe"] >= own
    assert part.of["gout"] == {Triple("my pill", relation, "gout") for relation in ("treats", "is given in")}
    assert part.of["unknown"] == part.of["sand"] == set()
    assert part.without_node == ("unknown",)
    # of 20 ordered pairs: 8 with the unknown one, 2 of one node, 6 with the lonely one, 4 with a path
    assert part.pairs == {
        "joined": 4, "without a path": 6, "cut off by max_nodes": 0, "of one node": 2, "without a node": 8,
    }  # fmt: skip


def test_a_search_that_was_cut_off_is_counted() -> None:
    part = graph_part(visits(["gout", "zyloprim brand"]), search(2), {"C/gout": 0, "C/zyloprim brand": 4}, 20)
    assert part.pairs["cut off by max_nodes"] == 2 and part.pairs["without a path"] == 2


def test_only_the_most_frequent_company_is_joined() -> None:
    sets = visits(["gout", "kidney"], ["gout", "kidney"], ["gout", "allopurinol"])
    assert [[sets.names[o] for o in others] for others in co_occurring(sets, 1)] == [["gout"], ["kidney"], ["gout"]]
    part = graph_part(sets, search(), {"C/gout": 0, "C/kidney": 2, "C/allopurinol": 3}, 1)
    assert all("allopurinol" not in triple for triple in part.of["gout"])
    assert all("kidney" not in triple for triple in part.of["allopurinol"]) and part.of["allopurinol"]


ENTITIES = st.sampled_from("abcdefgh")


@settings(max_examples=100)
@given(st.lists(st.builds(Triple, ENTITIES, st.just("r"), ENTITIES), max_size=12, unique=True), st.integers(0, 4))
def test_hops_are_those_of_a_graph(triples: list[Triple], hops: int) -> None:
    graph = nx.Graph([(triple.head, triple.tail) for triple in triples])
    graph.add_node("a")
    far = nx.single_source_shortest_path_length(graph, "a")
    near = [t for t in triples if min(far.get(t.head, 99), far.get(t.tail, 99)) < hops]
    assert sorted(around("a", triples, hops)) == sorted(near)
