"""KARE's knowledge, step by step (Section 3.1): concept graphs, clusters, communities, summaries, index.

Each step lies in a folder of its own below data.cache, named by a fingerprint of all that it depends on, written whole
or not at all. What an engine answered is kept beside them as it comes, so a build that was stopped goes on where it
stopped, and one that changes a later step pays for no answer twice. Of patients only those of training are read; the
graph is of every concept of the cohort's coding system.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghar.config import Config
from ghar.data.visit_codes import kinds_of
from ghar.envs.kare.graph.abstracts import Abstracts, read_abstracts
from ghar.envs.kare.graph.build import ConstructSpec, construct
from ghar.envs.kare.graph.clusters import THRESHOLDS, Clusters, cluster, join, rewrite, split_by_words
from ghar.envs.kare.graph.communities import Communities, detect
from ghar.envs.kare.graph.concepts import ConceptSets, concept_sets
from ghar.envs.kare.graph.from_engine import VISITS
from ghar.envs.kare.graph.scripted import scripted_extractor
from ghar.envs.kare.graph.scripted_summaries import reply as scripted_summary
from ghar.envs.kare.graph.summaries import summarise
from ghar.envs.kare.graph.themes import Theme, theme_of
from ghar.envs.kare.graph.triples import SOURCES, ConceptGraphs, concept_name
from ghar.envs.kare.retrieval.abstract_corpus import AbstractCorpus, index_abstracts
from ghar.envs.kare.retrieval.community_index import FORMAT as INDEX_FORMAT
from ghar.envs.kare.retrieval.community_index import CommunityIndex, build_index
from ghar.envs.kare.retrieval.patient_graph import ConceptNodes, concept_nodes
from ghar.envs.kare.settings import Settings, sizes
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph
from ghar.kg.paths import path_graph_of
from ghar.kg.umls import Umls
from ghar.llm.engines import engine_key, named_engine
from ghar.retrieval.encoders import Encoder, HashingEncoder
from ghar.seal import sound
from ghar.storage import new_folder

FORMAT = 6  # raise it when a step would give something else from the same inputs
BATCH = 4096  # names encoded at once
WORDS_ALONE = (0.01, 0.02, 0.03, 0.04, 0.05)  # thresholds of an encoder that knows no meaning, and so no synonyms
REPORT = "report.json"


@dataclass(frozen=True, eq=False)
class KareGraph:
    """index: what is retrieved from. nodes: of each concept. report: step -> its counts and costs."""

    index: CommunityIndex
    nodes: ConceptNodes
    report: dict[str, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class BuildInputs:
    """What the graph is built around.

    sets: concepts of the training samples. nodes: code of a concept -> node of the biomedical graph. drugs: concept ->
    name of the drug that it is an order of (`_drugs`). prompts: of the expert (`ghar.envs.kare.graph.from_engine`).
    """

    sets: ConceptSets
    nodes: Mapping[str, int]
    drugs: Mapping[str, str]
    prompts: str = VISITS


def visit_inputs(records: Records) -> BuildInputs:
    """Take the codes of the training patients' visits, and the cohort's coding system."""
    sets = concept_sets(records.splits.train, records.name_of, _coding(records))
    return BuildInputs(sets, records.links.nodes, _drugs(records))


@dataclass(frozen=True, eq=False)
class _Build:
    records: Records
    own: Settings
    encoder: Encoder
    inputs: BuildInputs
    report: dict[str, dict[str, Any]]

    @property
    def config(self) -> Config:
        return self.records.config

    @property
    def root(self) -> Path:
        return Path(self.config.data.cache) / "kare"

    @property
    def answers(self) -> Path:
        """Where the expert's answers are kept; a rule's answers depend on the graph that it reads."""
        rule = f"-{self.records.primekg.fingerprint[:12]}-{FORMAT}" if self.own.expert == "scripted" else ""
        return self.root / "answers" / f"{engine_key(self.config, self.own.expert)}{rule}"

    @property
    def seed(self) -> int:
        """The split's: runs that differ in nothing but their seed share what is built."""
        return self.config.task.split_seed

    @property
    def thresholds(self) -> Sequence[float]:
        """Cosine distances among which the silhouette chooses."""
        return WORDS_ALONE if isinstance(self.encoder, HashingEncoder) else THRESHOLDS

    def step(self, name: str, inputs: Sequence[object], build: Callable[[Path], dict[str, Any]]) -> Path:
        """The folder of a step, made by `build` where it is not there yet; what `build` returns is its report."""
        digest = hashlib.sha256(repr((FORMAT, *inputs)).encode()).hexdigest()[:16]
        folder = self.root / f"{name}-{digest}"
        if not sound(folder):
            began = time.perf_counter()
            with new_folder(folder, keep=True) as half:
                report = build(half)
                report["seconds"] = round(time.perf_counter() - began, 3)
                (half / REPORT).write_text(json.dumps(report, indent=1) + "\n")
        try:
            self.report[name] = json.loads((folder / REPORT).read_text())
        except (OSError, ValueError) as error:
            raise BadInput(f"{folder / REPORT} cannot be read ({error}): delete {folder}, it is made again.") from None
        return folder


def build_communities(records: Records, own: Settings, encoder: Encoder, inputs: BuildInputs) -> KareGraph:
    """The knowledge of a configuration, from `data.cache` as far as it is there. BadInput for a task that themes do not
    list and for whatever a step cannot use."""
    theme = theme_of(records.task.name)
    build = _Build(records, own, encoder, inputs, {})
    graphs_folder = _graphs(build)
    graphs = ConceptGraphs.read(graphs_folder / "graphs")
    clusters_folder = _clusters(build, graphs_folder, graphs)
    entities, rewritten = Clusters.read(clusters_folder / "entities"), ConceptGraphs.read(clusters_folder / "graphs")
    communities_folder = _communities(build, clusters_folder, rewritten)
    communities = Communities.read(communities_folder / "communities")
    index = CommunityIndex.load(_index(build, communities_folder, communities, theme) / "index")
    return KareGraph(index, concept_nodes(rewritten, entities, communities.entities), build.report)


def abstracts_of(records: Records, own: Settings) -> Abstracts | None:
    """The corpus: system.abstracts, in the demo world generated ones; None for real patients without a folder."""
    cache = Path(records.config.data.cache) / "abstracts"
    if own.abstracts is not None:
        return read_abstracts(Path(own.abstracts), cache)
    if records.world is None:
        return None
    from ghar.envs.worlds.severity.abstracts import write_abstracts  # only where patients are generated

    folder = records.world.root.with_name(f"{records.world.root.name}-abstracts")
    write_abstracts(records.world.root, folder)
    return read_abstracts(folder, cache)


def indexed(abstracts: Abstracts, encoder: Encoder, config: Config) -> AbstractCorpus:
    """The corpus, ready to be searched."""
    return index_abstracts(abstracts, encoder, Path(config.data.cache) / "indexes")


def _graphs(build: _Build) -> Path:
    """Section 3.1.1: the graph of every concept, from three sources."""
    records, own, sets = build.records, build.own, build.inputs.sets
    spec = ConstructSpec(own.concepts, own.path_length, own.path_count, own.path_nodes)
    links, abstracts, graph = sorted(build.inputs.nodes.items()), abstracts_of(records, own), records.graph
    papers = None if abstracts is None else (abstracts.fingerprint, build.encoder.key)
    some = () if set(own.sources) == set(SOURCES) else (sorted(own.sources),)
    wording = () if build.inputs.prompts == VISITS else (build.inputs.prompts,)
    inputs = (_digest(sets), _fingerprint(graph), links, papers, build.answers.name, spec, build.seed, *some, *wording)

    def make(folder: Path) -> dict[str, Any]:
        extractor = scripted_extractor(records.primekg) if own.expert == "scripted" else str
        credentialed = records.credentialed(records.cohort)
        with named_engine(build.config, own.expert, extractor, credentialed, lambda: list(sets.names)) as engine:
            graphs, report = construct(
                sets,
                spec,
                graph=graph.graph if isinstance(graph, Umls) else path_graph_of(graph),
                nodes=build.inputs.nodes,
                corpus=None if abstracts is None else indexed(abstracts, build.encoder, build.config),
                engine=engine,
                folder=build.answers,
                seed=build.seed,
                sources=own.sources,
                prompts=build.inputs.prompts,
            )
        graphs.write(folder / "graphs")
        return report.as_dict()

    return build.step("graphs", inputs, make)


def _coding(records: Records) -> list[str]:
    """The cohort's codes of conditions, procedures and drugs: its coding system, which says nothing of any patient."""
    codes = records.cohort.codes
    return codes.filter(kinds_of(codes).is_not_null())["code"].to_list()


def _drugs(records: Records) -> dict[str, str]:
    """Concept name on a real chart -> name of the drug that its node is, which the facts are of. Orders and treatments
    name forms, lines and brands: the eICU demo has 458 linked names of orders for 143 drugs. Empty for generated
    patients, for UMLS, and for groups of codes (data.codes), whose nodes are those of some of their members."""
    if records.source.generated or isinstance(records.graph, Umls) or records.code_map is not None:
        return {}
    nodes, graph = records.links.nodes, records.primekg
    drug = graph.types.index("drug") if "drug" in graph.types else -1
    drugs_of: dict[str, set[str]] = {}
    for code in _coding(records):
        node = nodes.get(code, -1)
        own = concept_name(graph.names[node]) if node >= 0 and graph.type[node] == drug else ""
        drugs_of.setdefault(concept_name(records.name_of(code)), set()).add(own)
    return {name: next(iter(own)) for name, own in sorted(drugs_of.items()) if len(own) == 1 and "" not in own}


def _clusters(build: _Build, before: Path, graphs: ConceptGraphs) -> Path:
    """Section 3.1.2: names that mean the same become one."""
    drugs = build.inputs.drugs

    def make(folder: Path) -> dict[str, Any]:
        names = {
            "entities": sorted({name for triple in graphs.triples for name in (triple.head, triple.tail)}),
            "relations": sorted({triple.relation for triple in graphs.triples}),
        }
        if not graphs.triples:
            raise BadInput("No source knows any of the patients' concepts, so there is no graph: check kg.path.")
        clusterings = {
            what: cluster(some, _encoded(build.encoder, some), seed=build.seed, thresholds=build.thresholds, what=what)
            for what, some in names.items()
        }
        if isinstance(build.encoder, HashingEncoder):
            clusterings = {what: split_by_words(clusters) for what, clusters in clusterings.items()}
        clusterings["entities"] = join(clusterings["entities"], drugs)
        rewritten = rewrite(graphs, clusterings["entities"], clusterings["relations"])
        clusterings["entities"].write(folder / "entities")
        rewritten.graphs.write(folder / "graphs")
        counts = {f"{what} before": len(some) for what, some in names.items()}
        counts |= {f"{what} after": len(np.unique(clusterings[what].representative)) for what in names}
        thresholds = {f"threshold of {what}": clusters.threshold for what, clusters in clusterings.items()}
        loops = {"self-loops dropped": rewritten.loops, "triples that became one": rewritten.merged}
        return {**counts, **thresholds, **loops, "triples after": len(rewritten.graphs.triples)}

    further = (sorted(drugs.items()),) if drugs else ()
    return build.step("clusters", (before.name, build.encoder.key, tuple(build.thresholds), build.seed, *further), make)


def _communities(build: _Build, before: Path, graphs: ConceptGraphs) -> Path:
    """Section 3.1.3: the hierarchy of communities, from several runs."""
    runs, largest = build.own.leiden_runs, build.own.cluster_size

    def make(folder: Path) -> dict[str, Any]:
        communities = detect(graphs, runs=runs, max_cluster=largest, seed=build.seed)
        communities.write(folder / "communities")
        levels = {f"level {level}": n for level, n in enumerate(np.bincount(communities.level).tolist())}
        dropped = {"dropped, no triple inside": communities.empty, "dropped, found before": communities.repeated}
        return {"communities": len(communities), **levels, **dropped}

    return build.step("communities", (before.name, runs, largest, build.seed), make)


def _index(build: _Build, before: Path, communities: Communities, theme: Theme | None) -> Path:
    """Summaries, and the index over them; the index alone is kept, the answers make the summaries again."""
    own, credentialed = build.own, build.records.credentialed(build.records.cohort)
    limits = sizes(build.config, own)
    small, large = limits.small, limits.large

    def make(folder: Path) -> dict[str, Any]:
        names = communities.entities
        with named_engine(build.config, own.expert, scripted_summary, credentialed, lambda: names) as engine:
            store = build.answers / "summaries.jsonl"
            summaries = summarise(communities, engine, store, theme, small=small, large=large, seed=build.seed)
        index = build_index(communities, summaries, theme, build.encoder, folder / "index")
        about = {} if theme is None else {f"about {theme.name}": sum(bool(text) for text in summaries.theme)}
        return {**index.counts, **summaries.missing, **about, **asdict(summaries.cost)}

    inputs = (INDEX_FORMAT, before.name, theme, small, large, build.answers.name, build.encoder.key, build.seed)
    return build.step("summaries", inputs, make)


def _encoded(encoder: Encoder, names: Sequence[str]) -> np.ndarray:
    """f32[n, d]."""
    parts = [encoder.passages(names[at : at + BATCH]) for at in range(0, len(names), BATCH)]
    return np.concatenate([np.empty((0, encoder.dimension), np.float32), *parts])


def _fingerprint(graph: KnowledgeGraph | Umls) -> str:
    """What the biomedical graph is, in short."""
    if not isinstance(graph, Umls):
        return graph.fingerprint
    own, digest = graph.graph, hashlib.sha256()
    for array in (own.head, own.tail, own.relation):
        digest.update(np.ascontiguousarray(array).tobytes())
    digest.update(repr((list(graph.cuis), list(own.names), list(own.relations))).encode())
    return digest.hexdigest()


def _digest(sets: ConceptSets) -> str:
    """What the concept sets are, in short."""
    digest = hashlib.sha256(repr((sets.names, sorted(sets.codes.items()))).encode())
    for array in (sets.start, sets.concept, sets.patient):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
