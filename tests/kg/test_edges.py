"""Graphs of other shapes: Hetionet's files, SPOKE-like exports, plain triples, read with types of their own."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.metapaths import metapaths
from ghar.kg.primekg import graph_folder, open_primekg, read_primekg

SIF = """source\tmetaedge\ttarget
Compound::DB00945\tCtD\tDisease::DOID:10763
Compound::DB00945\tCbG\tGene::5743
Compound::DB00945\tPCiC\tPharmacologic Class::N0000000160
"""
NODES = """id\tname\tkind
Compound::DB00945\tAspirin\tCompound
Disease::DOID:10763\thypertension\tDisease
Gene::5743\tPTGS2\tGene
Pharmacologic Class::N0000000160\tCyclooxygenase Inhibitors\tPharmacologic Class
"""


def facts(graph: KnowledgeGraph) -> set[tuple[str, str, str, str, str]]:
    found = set()
    for path in metapaths(graph):
        edges = graph.edges_of_path(path.index)
        for head, tail in zip(graph.head[edges], graph.tail[edges], strict=True):
            found.add((path.head_type, graph.names[head], path.relation, path.tail_type, graph.names[tail]))
    return found


def test_hetionets_edges_with_its_nodes(tmp_path: Path) -> None:
    path = tmp_path / "hetionet-v1.0-edges.sif.gz"
    path.write_bytes(gzip.compress(SIF.encode()))
    (tmp_path / "nodes.tsv").write_text(NODES)
    assert facts(read_primekg(path)) == {
        ("drug", "Aspirin", "CtD", "disease", "hypertension"),
        ("drug", "Aspirin", "CbG", "gene/protein", "PTGS2"),
        ("drug", "Aspirin", "PCiC", "pharmacologic class", "Cyclooxygenase Inhibitors"),
    }


def test_types_in_the_ids_alone(tmp_path: Path) -> None:
    (tmp_path / "edges.tsv").write_text(SIF)
    graph = read_primekg(tmp_path / "edges.tsv")
    assert set(graph.types) == {"drug", "disease", "gene/protein", "pharmacologic class"}
    assert "DB00945" in graph.names


def test_plain_triples_with_types_in_the_table(tmp_path: Path) -> None:
    rows = 'head,relation,tail,head_type,tail_type\naspirin,treats,"pain, acute",Drug,Symptom\nx,is_a,y,Widget,Widget\n'
    (tmp_path / "kg.csv").write_text(rows)
    assert facts(read_primekg(tmp_path / "kg.csv")) == {
        ("drug", "aspirin", "treats", "effect/phenotype", "pain, acute"),
        ("widget", "x", "is_a", "widget", "y"),
    }


def test_an_export_of_spoke_or_neo4j(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text(":START_ID,:TYPE,:END_ID\n1,TREATS_CtD,2\n")
    (tmp_path / "nodes.csv").write_text(":ID,name,:LABEL\n1,aspirin,Compound\n2,asthma,Disease\n")
    assert facts(read_primekg(tmp_path / "edges.csv")) == {("drug", "aspirin", "TREATS_CtD", "disease", "asthma")}


def test_another_table_of_nodes_makes_another_graph_in_the_cache(tmp_path: Path) -> None:
    (tmp_path / "edges.tsv").write_text(SIF)
    nodes = tmp_path / "nodes.tsv"
    nodes.write_text(NODES)
    first = graph_folder(tmp_path / "edges.tsv", tmp_path / "cache")
    nodes.write_text(NODES.replace("Aspirin", "Acetylsalicylic acid"))
    second = graph_folder(tmp_path / "edges.tsv", tmp_path / "cache")
    assert first != second
    assert "Acetylsalicylic acid" in open_primekg(tmp_path / "edges.tsv", tmp_path / "cache").names


@pytest.mark.parametrize("table, said", [
    ("a,b,c\n1,2,3\n", r"has the columns a, b, c: a graph is a table with PrimeKG's 12 columns .*or with head"),
    ("head,relation,tail\nx,is,y\n", r"tells no types of its nodes \(it has head, relation, tail\): a graph is"),
    ("head,relation,tail,head_type,tail_type\nx,is,y,drug,\n", r"row 1: node 'y' has no type|column y_type.* is blank"),
])  # fmt: skip
def test_what_is_no_graph_names_the_columns_seen(tmp_path: Path, table: str, said: str) -> None:
    (tmp_path / "kg.csv").write_text(table)
    with pytest.raises(BadInput, match=said):
        read_primekg(tmp_path / "kg.csv")


def test_a_node_that_the_table_of_nodes_lacks_is_named(tmp_path: Path) -> None:
    (tmp_path / "edges.tsv").write_text(SIF)
    (tmp_path / "nodes.tsv").write_text(NODES.replace("Gene::5743", "Gene::1"))
    with pytest.raises(BadInput, match="row 2: node 'Gene::5743' has no type: add it to the nodes"):
        read_primekg(tmp_path / "edges.tsv")


def test_nodes_without_a_type_name_their_columns(tmp_path: Path) -> None:
    (tmp_path / "edges.csv").write_text("head,relation,tail\nx,is,y\n")
    (tmp_path / "nodes.csv").write_text("id,name\nx,X\ny,Y\n")
    with pytest.raises(BadInput, match=r"nodes\.csv has the columns id, name: a table of nodes has id, name and type"):
        read_primekg(tmp_path / "edges.csv")
