from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.kg.graph import build_graph
from ghar.retrieval.texts import bulk_texts, first_items, item_text
from tests.kg.graphs import TINY, graph_of


def test_nodes_and_edges_read_as_words(tmp_path: Path):
    graph = graph_of(tmp_path, TINY)
    texts = [item_text(graph, item) for item in range(graph.num_nodes + graph.num_edges)]
    assert texts[0] == "amyotrophic lateral sclerosis (disease)"
    assert texts[graph.num_nodes] == "amyotrophic lateral sclerosis - parent-child - dementia"
    assert "Metformin - enzyme - SOD1" in texts and "Metformin - target - SOD1" in texts


def test_a_name_that_ends_with_its_type_is_followed_by_no_second_one(tmp_path: Path):
    """165 diseases of the PrimeKG subset are named so."""
    malaria, fever = (1, "disease", "malaria (disease)"), (2, "effect/phenotype", "fever (disease)")
    graph = graph_of(tmp_path, [(malaria, "r", "phenotype present", fever)])
    texts = ["malaria (disease)", "fever (disease) (effect/phenotype)"]
    assert [item_text(graph, item) for item in range(2)] == bulk_texts(graph)(np.arange(2)) == texts
    assert item_text(graph, 2) == "malaria (disease) - phenotype present - fever (disease)"


NAMES, TYPES = st.sampled_from(["a", "b", "a (drug)", "a (disease)"]), st.sampled_from(["drug", "disease"])


@pytest.mark.slow
@given(st.lists(st.tuples(NAMES, TYPES), min_size=2, max_size=8))
def test_equal_texts_share_their_first_item(named: list[tuple[str, str]]):
    names, types = zip(*named, strict=True)
    index = list(range(len(named)))
    nodes = pl.DataFrame({"index": index, "id": names, "type": types, "name": names, "source": names})
    edges = pl.DataFrame({"head": index[:-1], "tail": index[1:]})
    graph = build_graph(nodes, edges.with_columns(relation=pl.lit("r"), display_relation=pl.lit("r")))
    texts = [item_text(graph, item) for item in range(graph.num_nodes + graph.num_edges)]
    assert np.array_equal(first_items(graph), [texts.index(text) for text in texts])
