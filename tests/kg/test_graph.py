from dataclasses import fields
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph, build_graph
from ghar.storage import Strings, new_folder
from tests.kg.graphs import TINY, graph_of

TYPES = ("disease", "drug", "gene/protein")


@st.composite
def tables(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Random nodes with gaps in their numbers, and random directed edges, loops and repetitions included."""
    index = draw(st.lists(st.integers(0, 50), min_size=1, max_size=8, unique=True))
    types = draw(st.lists(st.sampled_from(TYPES), min_size=len(index), max_size=len(index)))
    nodes = pl.DataFrame({"index": index, "id": [str(i) for i in index], "type": types})
    nodes = nodes.with_columns(name=pl.format("n{}", "index"), source=pl.lit("S"))
    edge = st.tuples(st.sampled_from(index), st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from(index))
    edges = draw(st.lists(edge, max_size=20))
    schema = {"head": pl.Int64, "relation": pl.String, "display_relation": pl.String, "tail": pl.Int64}
    return nodes, pl.DataFrame(edges, schema=schema, orient="row")


@settings(max_examples=60)
@given(tables())
def test_sparse_rows_equal_a_scan_of_all_edges(pair: tuple[pl.DataFrame, pl.DataFrame]):
    nodes, edges = pair
    graph = build_graph(nodes, edges)
    kind = dict(zip(nodes["index"], nodes["type"], strict=True))
    facts = {(kind[h], r, kind[t], h, t, d) for h, r, d, t in edges.rows()}
    paths = sorted({fact[:3] for fact in facts})
    assert graph.num_edges == len(facts)
    assert [(graph.types[h], r, graph.types[t]) for h, r, t in zip(
        graph.path_head, graph.path_relation, graph.path_tail, strict=True)] == paths
    for p, path in enumerate(paths):
        mine = sorted(fact[3:] for fact in facts if fact[:3] == path)
        span = graph.edges_of_path(p)
        ends = [(graph.index[graph.head[e]], graph.index[graph.tail[e]]) for e in span]
        stored = [(*pair, graph.displays[graph.display[e]]) for pair, e in zip(ends, span, strict=True)]
        assert stored == mine
        assert graph.index[graph.nodes_of_path(p)].tolist() == sorted({end for edge in mine for end in edge[:2]})
    for node, number in enumerate(graph.index.tolist()):
        for p in [None, *range(len(paths))]:
            seen = {f[3:5] for f in facts if number in f[3:5] and (p is None or f[:3] == paths[p])}
            others = {(t if h == number else h) for h, t in seen}
            assert graph.index[graph.neighbours(node, p)].tolist() == sorted(others)
            touching = [e for e in range(graph.num_edges) if node in (graph.head[e], graph.tail[e])]
            span = range(graph.num_edges) if p is None else graph.edges_of_path(p)
            assert graph.edges_of(node, p).tolist() == [e for e in touching if e in span]


def same(a: KnowledgeGraph, b: KnowledgeGraph) -> bool:
    def plain(value: object) -> object:
        return value[:] if isinstance(value, Strings) else value.tolist() if isinstance(value, np.ndarray) else value

    return all(plain(getattr(a, f.name)) == plain(getattr(b, f.name)) for f in fields(KnowledgeGraph))


def test_a_saved_graph_comes_back_memory_mapped(tmp_path: Path):
    graph = graph_of(tmp_path, TINY)
    graph.save(tmp_path / "graph")
    graph.save(tmp_path / "graph")  # replaces the first
    opened = KnowledgeGraph.load(tmp_path / "graph")
    assert same(opened, graph)
    assert isinstance(opened.head.base, np.memmap)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["graph", "kg.csv"]


@pytest.mark.parametrize("name", ["head.npy", "names.data.npy", "meta.json"])
@pytest.mark.parametrize("damage", ["missing", "truncated"])
def test_a_damaged_folder_is_named(tmp_path: Path, name: str, damage: str):
    graph_of(tmp_path, TINY).save(tmp_path / "graph")
    path = tmp_path / "graph" / name
    path.unlink() if damage == "missing" else path.write_bytes(path.read_bytes()[:10])
    with pytest.raises(BadInput, match=name):
        KnowledgeGraph.load(tmp_path / "graph")


def test_an_interrupted_write_leaves_the_old_folder(tmp_path: Path):
    graph_of(tmp_path, TINY).save(tmp_path / "graph")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(KeyboardInterrupt), new_folder(tmp_path / "graph") as temporary:
        (temporary / "head.npy").write_bytes(b"half")
        raise KeyboardInterrupt
    assert sorted(tmp_path.rglob("*")) == before


def test_the_fingerprint_follows_the_content(tmp_path: Path):
    assert graph_of(tmp_path, TINY).fingerprint != graph_of(tmp_path, TINY[:-1]).fingerprint


@given(st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=6)))
def test_strings_behave_like_a_list(values: list[str]):
    strings = Strings.of(values)
    assert strings[:] == values == list(strings) and len(strings) == len(values)
    ordered = sorted(set(values))
    assert [Strings.of(ordered).find(value) for value in ordered] == list(range(len(ordered)))
    assert Strings.of([v for v in ordered if v != "x"]).find("x") is None
