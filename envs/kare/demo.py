"""KARE on generated patients, as `gymnasium.make("ghar/KARE-v0")` plays it.

Its communities are found in the demo world's knowledge graph alone, around the patients' conditions and drugs, and put
into words by a rule; runs build theirs from all three sources of the paper (envs/kare/build.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from ghar.data.cohort import Sample
from ghar.data.tasks.next_visit import next_visit_samples
from ghar.data.views.visits import visit_lists
from ghar.disk import cache_of
from ghar.envs.case import Case, topics_of
from ghar.envs.demo import ETA, SEED, WORDS, demo_cohort
from ghar.envs.kare.corpus import ConceptNames
from ghar.envs.kare.episode import KareEpisodes, KareReading, KareSpec, base_text, kare_scene
from ghar.envs.kare.graph.clusters import Clusters
from ghar.envs.kare.graph.communities import detect
from ghar.envs.kare.graph.scripted_summaries import reply
from ghar.envs.kare.graph.summaries import summarise
from ghar.envs.kare.graph.themes import READMISSION
from ghar.envs.kare.graph.triples import ConceptGraphs, Triple, concept_name, make_triple, union
from ghar.envs.kare.retrieval.community_corpus import CommunityCorpus, SelectCommunities
from ghar.envs.kare.retrieval.community_index import build_index
from ghar.envs.kare.retrieval.dgra import PAPER
from ghar.envs.kare.retrieval.patient_graph import concept_nodes, patient_graph
from ghar.envs.stepper import Scene
from ghar.envs.system import words
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.linking import link_codes
from ghar.kg.primekg import open_primekg
from ghar.llm.scripted import ScriptedEngine
from ghar.retrieval.encoders import HashingEncoder

SPEC = KareSpec("compact", "beside", tokens=600)  # the longest summary fits; of 96, 57 of 64 stays saw none
SAMPLES, TOP_N, RUNS, LARGEST, WIDTH = 240, 3, 2, 5, 64  # cases, communities each, runs of Leiden, its end, vectors


@cache
def demo_communities(folder: str | None = None) -> Scene:
    """Readmission (KARE's) of 240 stays of a generated world."""
    world, cohort = demo_cohort(folder)
    task, samples = next_visit_samples(cohort, "readmission")
    samples = samples[:SAMPLES]
    graph = open_primekg(world.root / "kg" / "kg.csv.gz", cache_of(folder) / "graphs")
    links = link_codes(cohort.codes, graph, world.root / "kg" / "mondo_references.csv.gz")
    names = ConceptNames(links.respelled(cohort.names(), graph)).of_all
    concepts = _concept_graphs(samples, names, dict(links.nodes), graph)
    communities = detect(concepts, runs=RUNS, max_cluster=LARGEST, seed=SEED)
    kept, encoder = cache_of(folder) / "kare-views", HashingEncoder(WIDTH)
    kept.mkdir(parents=True, exist_ok=True)
    summaries = summarise(communities, ScriptedEngine(reply), kept / f"{world.root.name}.jsonl", READMISSION, seed=SEED)
    index = build_index(communities, summaries, READMISSION, encoder, kept / world.root.name)
    entities = sorted({name for triple in concepts.triples for name in (triple.head, triple.tail)})
    own = Clusters(tuple(entities), np.arange(len(entities), dtype=np.int32), 0.0)  # every name is its own cluster
    nodes = concept_nodes(concepts, own, communities.entities)
    graphs = {sample.sample_id: patient_graph(sample.history, names.__getitem__, nodes) for sample in samples}
    texts = visit_lists(samples, names.__getitem__, style="compact", budget=WORDS, count=words)
    cases = [
        Case(
            s.sample_id, s.subject_id, s.visit_id, view.text, topics_of(s, names.__getitem__), task, s.label,
            KareReading(), credentialed=s.credentialed,
        )
        for s, view in zip(samples, texts, strict=True)
    ]  # fmt: skip
    episodes = KareEpisodes(SPEC, lambda case: SelectCommunities(base_text(case), None, TOP_N, case.sample_id), words)
    return kare_scene(episodes, CommunityCorpus(index, encoder, graphs, PAPER), cases, ETA)


def _concept_graphs(
    samples: Sequence[Sample], names: dict[str, str], linked: dict[str, int], graph: KnowledgeGraph
) -> ConceptGraphs:
    """What the graph says of each condition and drug: the edges at its node."""
    triples: dict[str, list[Triple]] = {}
    for sample in samples:
        for visit in sample.history:
            for code in (*visit.diagnoses, *visit.medications):
                concept = concept_name(names[code])
                if code in linked and concept not in triples:
                    triples[concept] = _edges(graph, linked[code])
    return union({"graph": triples})


def _edges(graph: KnowledgeGraph, node: int) -> list[Triple]:
    triples = []
    for edge in graph.edges_of(node).tolist():
        head, tail = int(graph.head[edge]), int(graph.tail[edge])
        relation = graph.displays[int(graph.display[edge])]
        triple = make_triple(graph.names[head], relation, graph.names[tail])
        if triple is not None:
            triples.append(triple)
    return triples
