from pathlib import Path

from ghar.kg.metapaths import MetaPath, metapaths
from tests.kg.graphs import ALS, DIABETES, METFORMIN, TINY, WEAKNESS, graph_of


def test_texts_read_the_display_relation_where_it_is_unique(tmp_path: Path):
    assert [path.text for path in metapaths(graph_of(tmp_path, TINY))] == [
        "disease - parent-child - disease",
        "disease - phenotype present - effect/phenotype",
        "disease - associated with - gene/protein",
        "disease - indication - drug",
        "drug - drug_protein - gene/protein",  # target and enzyme
    ]


def test_paths_that_would_read_alike_show_their_relation(tmp_path: Path):
    edges = [(ALS, "one", "has", WEAKNESS), (DIABETES, "two", "has", WEAKNESS), (METFORMIN, "one", "has", WEAKNESS)]
    texts = [path.text for path in metapaths(graph_of(tmp_path, edges))]
    assert texts == [
        "disease - one - effect/phenotype",
        "disease - two - effect/phenotype",
        "drug - has - effect/phenotype",
    ]


def test_ids_count_from_zero(tmp_path: Path):
    paths = metapaths(graph_of(tmp_path, TINY))
    assert [path.index for path in paths] == list(range(5))
    assert paths[3] == MetaPath(3, "disease", "indication", "drug", "indication")
