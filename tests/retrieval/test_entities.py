"""What the demo world relies on: asking for an entity finds that entity's own edge, and quickly."""

from functools import partial
from pathlib import Path

import numpy as np
import pytest

from ghar.episode import Retrieve
from ghar.kg.metapaths import metapaths
from ghar.kg.primekg import read_primekg
from ghar.retrieval.build import build_retriever
from tests.growth import TENFOLD, times_as_long
from tests.kg.graphs import Edge, graph_of

ENDINGS = ("", " type 6", " with parkinsonism", "-parkinsonism-dementia complex", ", juvenile", " of childhood onset")
STEMS = ("amyotrophic lateral sclerosis", "acute kidney injury", "heart failure", "sepsis", "anemia", "osteogenesis")
FRONTS = ("", "familial ", "atypical ", "early onset ")
EFFECTS = ("Prolonged recovery", "Muscle weakness", "Abnormality of the lower limb", "Fever")


def look_alikes() -> list[Edge]:
    """Diseases whose names contain each other, each with one phenotype, a gene and a drug."""
    diseases = [f"{front}{stem}{end}" for stem in STEMS for front in FRONTS for end in ENDINGS]
    edges: list[Edge] = []
    for i, name in enumerate(diseases):
        node = (i, "disease", name)
        effect = (1000 + i % len(EFFECTS), "effect/phenotype", EFFECTS[i % len(EFFECTS)])
        edges.append((node, "disease_phenotype_positive", "phenotype present", effect))
        edges.append((node, "disease_protein", "associated with", (2000 + i % 7, "gene/protein", f"GEN{i % 7}")))
        edges.append((node, "indication", "indication", (3000 + i % 11, "drug", f"Drugol {i % 11}")))
    return edges


@pytest.mark.parametrize("prefix", ["", "disease "])
def test_the_best_edge_is_that_of_exactly_the_entity(tmp_path: Path, prefix: str):
    graph = graph_of(tmp_path, look_alikes())
    [path] = [p.index for p in metapaths(graph) if p.tail_type == "effect/phenotype"]
    names = [name for name, kind in zip(graph.names, graph.type, strict=True) if graph.types[kind] == "disease"]
    answers = build_retriever(graph, "tfidf").retrieve([Retrieve(prefix + name, (path,)) for name in names])
    for name, answer in zip(names, answers, strict=True):
        found = {p.kind: p.text for p in answer.passages}
        assert found["node"] == f"{name} (disease)"
        assert found["edge"].startswith(f"{name} - phenotype present - ")


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["", "disease "])
def test_the_best_edge_in_the_real_graph(shared_data: Path, prefix: str):
    graph = read_primekg(shared_data / "kg/primekg-subset/merged_kg_12col.csv.gz")
    path = [p.relation for p in metapaths(graph)].index("disease_phenotype_positive")
    edges = graph.edges_of_path(path)
    heads = np.unique(graph.head[edges.start : edges.stop]).tolist()
    answers = build_retriever(graph, "tfidf").retrieve([Retrieve(prefix + graph.names[h], (path,)) for h in heads])
    best = [next(p.ident for p in answer.passages if p.kind == "edge") for answer in answers]
    assert graph.head[best].tolist() == heads  # all 216


@pytest.mark.slow
def test_ten_times_the_queries_take_about_ten_times_as_long(tmp_path: Path):
    rng = np.random.default_rng(0)
    edges: list[Edge] = []
    for i in range(2000):
        words = " ".join(rng.choice(["acute", "chronic", "renal", "lung", "failure", "pain", "storage", "rare"], 3))
        node = (i, "disease", f"{words} {i}")
        effect = (5000 + i % 40, "effect/phenotype", f"e{i % 40}")
        gene = (6000 + i % 300, "gene/protein", f"G{i % 300}")
        edges.append((node, "disease_phenotype_positive", "phenotype present", effect))
        edges.append((node, "disease_protein", "associated with", gene))
        edges.append((node, "indication", "indication", (7000 + i % 200, "drug", f"d{i % 200}")))
    graph = graph_of(tmp_path, edges)
    retriever = build_retriever(graph, "tfidf")
    requests = [Retrieve(f"disease {graph.names[i]}", (0, 1, 2)) for i in rng.integers(2000, size=500).tolist()]
    few, all_of_them = partial(retriever.retrieve, requests[:50]), partial(retriever.retrieve, requests)
    assert times_as_long(few, all_of_them) < TENFOLD
