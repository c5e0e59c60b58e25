"""From triples to a patient's knowledge: every part of KARE's retrieval, one after the other, on a small graph."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np

from ghar.data.cohort import Visit
from ghar.envs.kare.graph.clusters import cluster, rewrite
from ghar.envs.kare.graph.communities import detect
from ghar.envs.kare.graph.scripted_summaries import reply
from ghar.envs.kare.graph.summaries import summarise
from ghar.envs.kare.graph.themes import READMISSION
from ghar.envs.kare.graph.triples import Triple, union
from ghar.envs.kare.retrieval.community_corpus import ChosenCommunity, CommunityCorpus, SelectCommunities
from ghar.envs.kare.retrieval.community_index import CommunityIndex, build_index
from ghar.envs.kare.retrieval.dgra import PAPER
from ghar.envs.kare.retrieval.patient_graph import concept_nodes, patient_graph
from ghar.llm.scripted import ScriptedEngine
from ghar.retrieval.encoders import HashingEncoder

ENCODER = HashingEncoder(64)
TOLD = {
    f"disease {c}": [
        Triple(f"disease {c}", "phenotype present", f"grade {grade} course"),
        Triple(f"disease {c}", "phenotype present", f"sign {c}"),
        Triple(f"drug {c}", "indication", f"disease {c}"),
        Triple(f"disease {c}", "associated with", f"disease {after}"),
    ]
    for c, after, grade in zip("abcdefgh", "bcdefgha", (9, 1, 2, 8, 3, 1, 2, 3), strict=True)
}


def build(folder: Path) -> tuple[CommunityIndex, CommunityCorpus]:
    graphs = union({"graph": TOLD})
    entities = sorted({name for t in graphs.triples for name in (t.head, t.tail)})
    words = sorted({t.relation for t in graphs.triples})
    own = cluster(entities, ENCODER.passages(entities), seed=0, thresholds=(1e-3,))
    relations = cluster(words, ENCODER.passages(words), seed=0, thresholds=(1e-3,))
    graphs = rewrite(graphs, own, relations).graphs
    communities = detect(graphs, runs=3, seed=0)
    summaries = summarise(communities, ScriptedEngine(reply), folder / "answers.jsonl", READMISSION, seed=0)
    index = build_index(communities, summaries, READMISSION, ENCODER, folder / "index")
    nodes = concept_nodes(graphs, own, communities.entities)
    history = [Visit(i, datetime(2150, 1, 1 + i), codes) for i, codes in enumerate([("d", "f"), ("a", "unheard of")])]
    graph = patient_graph(history, lambda code: f"Disease {code.upper()}", nodes)
    return index, CommunityCorpus(index, ENCODER, {"s": graph}, PAPER)


def test_a_patient_gets_what_is_known_of_the_record(tmp_path: Path) -> None:
    index, corpus = build(tmp_path)
    graph = corpus.graphs["s"]
    assert [index.entities[v] for v in graph.direct] == ["disease a", "disease d", "disease f"]
    assert graph.visit.tolist() == [1, 0, 0] and graph.unknown == ("disease unheard of",)
    [evidence] = corpus.retrieve([SelectCommunities("Visit 0: disease d, f. Visit 1: disease a.", None, 6, "s")])
    assert len(evidence.passages) == 6 and len({p.ident for p in evidence.passages}) == 6
    for passage in evidence.passages:
        assert isinstance(passage, ChosenCommunity)
        names = set(index.names(passage.ident))
        assert passage.factors.direct_hits == len(names & {"disease a", "disease d", "disease f"})
        assert any(name in passage.text for name in names)
    for grade in ("disease a phenotype present grade 9 course", "disease d phenotype present grade 8 course"):
        assert grade in evidence.text
    assert np.count_nonzero(index.arrays.theme_nodes) > 0
