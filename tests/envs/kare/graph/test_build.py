import json
from pathlib import Path

import numpy as np
import pytest

from ghar.envs.kare.graph.abstracts import Abstracts
from ghar.envs.kare.graph.build import ConstructSpec, construct
from ghar.envs.kare.graph.concepts import ConceptSets
from ghar.envs.kare.graph.from_engine import NameFinder, around
from ghar.envs.kare.graph.scripted import scripted_extractor
from ghar.envs.kare.graph.triples import ConceptGraphs, Triple
from ghar.envs.kare.retrieval.abstract_corpus import AbstractCorpus, index_abstracts
from ghar.episode import Completion
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.paths import path_graph_of
from ghar.llm.engine import Request
from ghar.llm.scripted import ScriptedEngine
from ghar.retrieval.encoders import HashingEncoder
from ghar.storage import Strings
from tests.kg.graphs import TINY, graph_of

SPEC = ConstructSpec(co_concepts=20, max_length=7, max_paths=40, max_nodes=12_000)
CODES = {"riluzole": "DRUG/riluzole", "amyotrophic lateral sclerosis": "ICD10CM/G1221", "metformin": "DRUG/metformin"}
TEXTS = [
    "On ALS. Riluzole is given for amyotrophic lateral sclerosis. SOD1 is associated with dementia.",
    "On nothing. 3 patients were seen.",
    "Metformin leads to a grade 2 course. Metformin should be avoided in frailty.",
]


class Recorder(ScriptedEngine):
    """A scripted engine that keeps the prompts it was asked."""

    def __init__(self, reply):
        super().__init__(reply)
        self.prompts: list[str] = []

    def generate(self, requests: list[Request]) -> list[Completion]:
        self.prompts += [request.prompt for request in requests]
        return super().generate(requests)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> KnowledgeGraph:
    return graph_of(tmp_path_factory.mktemp("kg"), TINY)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> AbstractCorpus:
    abstracts = Abstracts(Strings.of(["a", "b", "c"]), Strings.of(TEXTS), {}, "tiny", True)
    return index_abstracts(abstracts, HashingEncoder(), tmp_path_factory.mktemp("abstracts"))


def sets() -> ConceptSets:
    """Two visits of one patient and a near copy, one concept without a node and one that is only in the copy."""
    names = ("amyotrophic lateral sclerosis", "frailty", "metformin", "riluzole", "rest")
    visits = [[0, 3], [0, 1, 2, 3], [0, 3, 4]]
    codes = {name: (CODES.get(name, f"OTHER/{name}"),) for name in names}
    concept = np.array([c for visit in visits for c in visit], np.int32)
    return ConceptSets(names, np.cumsum([0, *map(len, visits)]), concept, np.array([7, 7, 8]), codes)


def nodes(graph: KnowledgeGraph) -> dict[str, int]:
    of = {name.lower(): i for i, name in enumerate(graph.names)}
    return {code: of[name] for name, code in CODES.items()}


def build(graph: KnowledgeGraph, corpus: AbstractCorpus | None, engine: ScriptedEngine, folder: Path):
    paths, linked = path_graph_of(graph), nodes(graph)
    return construct(sets(), SPEC, graph=paths, nodes=linked, corpus=corpus, engine=engine, folder=folder, seed=3)


def told(graphs: ConceptGraphs, concept: str) -> set[Triple]:
    return {graphs.triples[i] for i in graphs.of[concept]}


@pytest.fixture(autouse=True)
def fewer_differences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ghar.envs.kare.graph.build.SIMILAR", 2)  # visits of the test are small


def test_three_sources_meet_in_one_graph(graph: KnowledgeGraph, corpus: AbstractCorpus, tmp_path: Path) -> None:
    graphs, report = build(graph, corpus, ScriptedEngine(scripted_extractor(graph)), tmp_path)
    als = told(graphs, "amyotrophic lateral sclerosis")
    given = Triple("riluzole", "is given for", "amyotrophic lateral sclerosis")
    assert given in als and graphs.sources[graphs.triples.index(given)] == {"corpus"}
    assert not any("dementia" in triple for triple in graphs.triples)  # off every path, and no listed concept
    both = [t for t, s in zip(graphs.triples, graphs.sources, strict=True) if s == {"graph", "model"}]
    assert any("amyotrophic lateral sclerosis" in t and "riluzole" in t for t in both)
    assert told(graphs, "frailty") >= {Triple("metformin", "should be avoided in", "frailty")}
    assert told(graphs, "rest") == set()
    assert report.without_node == ("frailty", "rest")
    assert report.without_triple == ("rest",)
    assert (report.sets, report.kept, report.alone) == (3, 2, 1), "rest is in the near copy only"
    assert report.triples["all"] == len(graphs.triples)
    assert report.pairs["without a node"] > 0 and report.pairs["joined"] > 0
    assert report.asked["model"]["asked"] == 3 and report.asked["corpus"]["asked"] == 9
    assert report.asked["corpus"]["answers without a triple"] > 0
    json.dumps(report.as_dict())


def test_a_stopped_job_goes_on_and_asks_nothing_twice(
    graph: KnowledgeGraph, corpus: AbstractCorpus, tmp_path: Path
) -> None:
    reply = scripted_extractor(graph)
    left = [9]  # the questions on abstracts; then it stops among those on concepts

    def fails(prompt: str) -> str:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return reply(prompt)

    whole, _ = build(graph, corpus, ScriptedEngine(reply), tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        build(graph, corpus, ScriptedEngine(fails), tmp_path / "cut")
    engine = Recorder(reply)
    again, report = build(graph, corpus, engine, tmp_path / "cut")
    assert len(engine.prompts) == 3
    assert report.asked["corpus"]["reused"] == 9 and report.asked["corpus"]["asked"] == 0
    assert again.triples == whole.triples and again.sources == whole.sources


def test_unreadable_answers_are_retried_counted_and_named(graph: KnowledgeGraph, tmp_path: Path) -> None:
    replies = iter(["prose", "", '[["riluzole", "delays", "dea'] + ['[["riluzole", "treats", "ALS"], ["x"]]'] * 3)
    engine = Recorder(lambda prompt: next(replies) if "metformin" in prompt else "I do not know.")
    graphs, report = build(graph, None, engine, tmp_path)
    cost = report.asked["model"]
    assert len(engine.prompts) == cost["asked"] == 9 and cost["unreadable"] == 9
    assert cost["by_reason"] == {"half_list": 1, "no_list": 7, "nothing": 1}
    assert sorted(cost["failed"].values()) == ["half_list", "no_list", "no_list"]
    assert "corpus" not in report.asked and report.triples["model"] == 0
    assert len((tmp_path / "concepts.jsonl").read_text().splitlines()) == 9
    assert graphs.triples  # the graph's are there


def test_three_hops_and_no_further() -> None:
    chain = [Triple(f"e{i}", "r", f"e{i + 1}") if i % 2 else Triple(f"e{i + 1}", "r", f"e{i}") for i in range(6)]
    assert set(around("e0", chain, 3)) == set(chain[:3])
    assert set(around("e2", chain, 1)) == set(chain[1:3])
    assert around("elsewhere", chain, 3) == []


def test_mentions_are_whole_words() -> None:
    mentions = NameFinder(["heart failure", "failure", "acute heart failure", "art"])
    assert mentions.of("Heart-failure, or Art?") == {"heart failure", "failure", "art"}


def test_the_prompts_carry_concepts_and_text(graph: KnowledgeGraph, corpus: AbstractCorpus, tmp_path: Path) -> None:
    engine = Recorder(lambda prompt: "[]")
    build(graph, corpus, engine, tmp_path)
    assert sum("frailty; metformin; riluzole" in prompt for prompt in engine.prompts) == 4
    assert sum("grade 2 course" in prompt for prompt in engine.prompts) == 3
    assert sum("At most 10 facts" in prompt for prompt in engine.prompts) == 9
    assert sum(prompt.rstrip().endswith("rest") for prompt in engine.prompts) <= 4
