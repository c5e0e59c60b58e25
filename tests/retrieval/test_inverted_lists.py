"""Inverted lists of large partitions against searching them whole."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.graph import primekg_sized
from benchmarks.retrieval import requests_of
from ghar.episode import Retrieve
from ghar.retrieval.build import build_retriever
from ghar.retrieval.dense import DenseIndex
from ghar.retrieval.inverted_lists import EDGES, NODES, InvertedLists
from ghar.retrieval.partition import PartitionRetriever

ALL = 10_000  # more probes than there are lists


@pytest.fixture(scope="module")
def listed() -> Iterator[PartitionRetriever]:
    """A graph of PrimeKG's shape whose partitions above 50 items have lists."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ghar.retrieval.inverted_lists.SMALL", 50)
        yield build_retriever(primekg_sized(0, 0.003), "hashing", probes=ALL)


def requests(retriever: PartitionRetriever, top_n: int) -> list[Retrieve]:
    rng = np.random.default_rng(1)
    partitions = rng.integers(0, retriever.graph.num_paths, 150)
    return [replace(request, top_n=top_n) for request in requests_of(retriever.graph, rng, partitions)]


def lists_of(retriever: PartitionRetriever) -> InvertedLists:
    assert retriever.lists is not None
    return retriever.lists


@pytest.mark.parametrize("top_n", [1, 7])
def test_reading_every_list_is_exact(listed: PartitionRetriever, top_n: int):
    asked = requests(listed, top_n)
    assert listed.retrieve(asked) == replace(listed, lists=None).retrieve(asked)


def test_a_few_lists_find_nearly_all(listed: PartitionRetriever):
    asked = requests(listed, 1)
    truth = replace(listed, lists=None).retrieve(asked)
    found = replace(listed, probes=4).retrieve(asked)
    same = np.mean([a.passages[0].score == b.passages[0].score for a, b in zip(found, truth, strict=True)])
    assert same > 0.9
    exact = {(p.kind, p.ident, q.query): p.score for q, b in zip(asked, truth, strict=True) for p in b.passages}
    for request, answer in zip(asked, found, strict=True):
        for p in answer.passages:  # what is found has its exact score
            assert exact.get((p.kind, p.ident, request.query), p.score) == p.score


def test_each_part_is_split_into_lists_without_loss(listed: PartitionRetriever):
    lists, graph = lists_of(listed), listed.graph
    query = listed.index.encode(["anything"])[0]
    for partition in range(graph.num_paths):
        edges = graph.edges_of_path(partition)
        for part, items in ((NODES, graph.nodes_of_path(partition)), (EDGES, np.asarray(edges) + graph.num_nodes)):
            assert lists.has((partition, part)) == (len(items) > 50)
            if lists.has((partition, part)):
                assert np.array_equal(lists.candidates((partition, part), query, ALL, 1), items)


def test_more_lists_are_read_until_top_n_is_full(listed: PartitionRetriever):
    largest = int(np.argmax(np.diff(listed.graph.path_start)))
    few = replace(listed, probes=1)
    [answer] = few.retrieve([Retrieve("anything", (largest,), 500)])
    assert sum(p.kind == "edge" for p in answer.passages) == 500


def test_an_answer_does_not_depend_on_its_batch(listed: PartitionRetriever):
    few, asked = replace(listed, probes=3), requests(listed, 2)[:30]
    assert few.retrieve(asked) == [few.retrieve([request])[0] for request in asked]


@pytest.mark.slow
def test_kept_lists_answer_the_same_and_damage_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("ghar.retrieval.inverted_lists.SMALL", 50)
    graph = primekg_sized(0, 0.003)
    first = build_retriever(graph, "hashing", cache=tmp_path, probes=3)
    again = build_retriever(graph, "hashing", cache=tmp_path, probes=3)
    asked = requests(first, 2)
    assert first.retrieve(asked) == again.retrieve(asked)
    assert isinstance(again.index, DenseIndex) and isinstance(again.index.matrix.base, np.memmap)
    [path] = tmp_path.glob("*/centroids.npy")
    path.write_bytes(path.read_bytes()[:-8])
    assert first.retrieve(asked) == build_retriever(graph, "hashing", cache=tmp_path, probes=3).retrieve(asked)
    assert f"{path} is damaged" in capsys.readouterr().err


def test_without_probes_every_search_is_exact(listed: PartitionRetriever):
    assert build_retriever(listed.graph, "hashing").lists is None
    assert build_retriever(listed.graph, "tfidf", probes=3).lists is None
