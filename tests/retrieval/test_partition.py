"""Eq. 10 of GHAR against a direct evaluation over all texts of each partition."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from ghar.episode import Evidence, Passage, Retrieve
from ghar.kg.graph import KnowledgeGraph, build_graph
from ghar.retrieval.build import build_retriever
from ghar.retrieval.dense import DenseIndex
from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.partition import PartitionRetriever
from ghar.retrieval.sparse import FILLERS, passage_terms, words_and_pairs
from ghar.retrieval.texts import edge_text, node_text
from tests.kg.graphs import TINY, graph_of

WORDS = ("acute", "chronic", "renal", "failure", "of", "lung")
names = st.lists(st.sampled_from(WORDS), min_size=1, max_size=3).map(" ".join)


@st.composite
def graphs(draw: st.DrawFn) -> KnowledgeGraph:
    labels = draw(st.lists(names, min_size=2, max_size=10))
    types = draw(st.lists(st.sampled_from(["disease", "drug"]), min_size=len(labels), max_size=len(labels)))
    index = list(range(len(labels)))
    ends = st.sampled_from(index)
    edges = draw(st.lists(st.tuples(ends, st.sampled_from("rs"), st.sampled_from(["has", "is"]), ends), min_size=1))
    nodes = pl.DataFrame({"index": index, "id": labels, "type": types, "name": labels, "source": labels})
    schema = ["head", "relation", "display_relation", "tail"]
    return build_graph(nodes, pl.DataFrame(edges, schema=schema, orient="row"))


def cosine(graph: KnowledgeGraph, kind: str) -> Callable[[str, str], float]:
    """Of a query and a text, by dense vectors; 0 by TF-IDF where both share filler words alone."""
    everything = [node_text(graph, v) for v in range(graph.num_nodes)]
    everything += [edge_text(graph, e) for e in range(graph.num_edges)]
    if kind == "hashing":
        encode = HashingEncoder().passages
        return lambda query, text: round(float(encode([query])[0].astype(float) @ encode([text])[0].astype(float)), 5)
    vectorizer = TfidfVectorizer(analyzer=passage_terms).fit(everything)

    def score(query: str, text: str) -> float:
        spans = [query.split()[i:j] for i in range(9) for j in range(i + 1, 9)]
        known = [" ".join(span) for span in spans if "=" + " ".join(span) in vectorizer.vocabulary_]
        terms = words_and_pairs(query) + ["=" + name for name in sorted(known, key=lambda name: -len(name.split()))[:1]]
        shared = set(terms) & set(passage_terms(text))
        if all(set(term.split()) <= FILLERS for term in shared):
            return 0.0
        return round(float(unit(terms) @ unit(passage_terms(text))), 5)

    def unit(terms: Sequence[str]) -> np.ndarray:
        vector = np.zeros(len(vectorizer.vocabulary_))
        for term in terms:
            if (at := vectorizer.vocabulary_.get(term)) is not None:
                vector[at] += vectorizer.idf_[at]
        return vector / (np.linalg.norm(vector) or 1)

    return score


def directly(graph: KnowledgeGraph, kind: str, request: Retrieve) -> list[Passage]:
    """Union over partitions of the best N nodes and the best N edges, then sorted, equal texts once."""
    score, union = cosine(graph, kind), []
    whole = request.partitions is None
    for p in [-1] if whole else sorted(set(request.partitions or ())):
        edges = range(graph.num_edges) if whole else graph.edges_of_path(p)
        touched = {int(end[e]) for e in edges for end in (graph.head, graph.tail)}
        nodes = range(graph.num_nodes) if whole else sorted(touched)
        for name, idents, text in (("node", nodes, node_text), ("edge", edges, edge_text)):
            made = [Passage(t, name, p, score(request.query, t), i) for i in idents for t in [text(graph, i)]]
            made = [m for m in made if kind == "hashing" or m.score > 0]
            union += sorted(made, key=lambda m: (-m.score, m.ident))[: request.top_n]
    union.sort(key=lambda m: (-m.score, m.kind, m.ident, m.partition))
    return [m for i, m in enumerate(union) if m.text not in {u.text for u in union[:i]}]


@pytest.mark.parametrize("kind", ["tfidf", "hashing"])
@settings(max_examples=25)
@given(graphs(), st.lists(st.tuples(names, st.integers(1, 4), st.data()), min_size=1, max_size=3))
def test_equation_10(kind: str, graph: KnowledgeGraph, wishes: list[tuple[str, int, st.DataObject]]):
    ids = st.none() | st.lists(st.integers(0, graph.num_paths - 1), max_size=3).map(tuple)
    requests = [Retrieve(query, data.draw(ids), top_n) for query, top_n, data in wishes]
    answers = build_retriever(graph, kind).retrieve(requests)
    for request, answer in zip(requests, answers, strict=True):
        expected = directly(graph, kind, request)
        assert [p.score for p in answer.passages] == pytest.approx([p.score for p in expected], abs=2e-5)
        assert [(p.kind, p.ident, p.partition, p.text) for p in answer.passages] == [
            (p.kind, p.ident, p.partition, p.text) for p in expected
        ]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    return graph_of(tmp_path_factory.mktemp("kg"), TINY)


@pytest.mark.parametrize("kind", ["tfidf", "bm25", "hashing"])
def test_the_obvious_passage_comes_first(tiny: KnowledgeGraph, kind: str):
    retriever = build_retriever(tiny, kind)
    requests = [Retrieve("metformin", (3,)), Retrieve("riluzole target SOD1", (4,)), Retrieve("dementia", None)]
    tops = [answer.passages[0].text for answer in retriever.retrieve(requests)]
    assert tops == ["Metformin (drug)", "Riluzole - target - SOD1", "dementia (disease)"]


@pytest.mark.parametrize("kind", ["tfidf", "bm25", "hashing"])
def test_an_answer_does_not_depend_on_its_batch(tiny: KnowledgeGraph, kind: str):
    retriever = build_retriever(tiny, kind)
    requests = [Retrieve(q, p, n) for q in ("SOD1 drug", "weakness", "") for p in (None, (0, 1), ()) for n in (1, 3)]
    assert retriever.retrieve(requests) == [retriever.retrieve([request])[0] for request in requests]
    assert retriever.retrieve([]) == []


def test_a_node_of_two_partitions_appears_once(tiny: KnowledgeGraph):
    [answer] = build_retriever(tiny, "tfidf").retrieve([Retrieve("SOD1", (4, 2, 4))])
    assert [p.partition for p in answer.passages if p.text == "SOD1 (gene/protein)"] == [2]


def test_no_partition_is_no_evidence(tiny: KnowledgeGraph):
    assert build_retriever(tiny, "tfidf").retrieve([Retrieve("SOD1", ())]) == [Evidence()]


@pytest.mark.parametrize(("wish", "says"), [(Retrieve("x", (5,)), "meta-path 5"), (Retrieve("x", None, 0), "top_n")])
def test_impossible_requests(tiny: KnowledgeGraph, wish: Retrieve, says: str):
    with pytest.raises(ValueError, match=says):
        build_retriever(tiny, "tfidf").retrieve([wish])


@dataclass(frozen=True)
class Constant:
    """An encoder to which all texts are alike: everything ties."""

    key: str = "constant"
    dimension: int = 4

    def queries(self, texts: Sequence[str]) -> np.ndarray:
        return np.full((len(texts), 4), 0.5, dtype=np.float32)

    passages = queries


def test_ties_beyond_the_spare_candidates_go_to_the_lowest_item():
    index = DenseIndex(Constant().passages(["x"] * 500), Constant())
    for items in (range(100, 400), np.arange(7, 500, 3)):
        [(hits, scores)] = index.search(index.encode(["q"]), items, 2)
        assert hits.tolist() == list(items[:2]) and scores.tolist() == [1.0, 1.0]


def test_a_retriever_is_only_a_graph_and_an_index(tiny: KnowledgeGraph):
    built = build_retriever(tiny, "bm25")
    assert PartitionRetriever(tiny, built.index).retrieve([Retrieve("SOD1")]) == built.retrieve([Retrieve("SOD1")])
