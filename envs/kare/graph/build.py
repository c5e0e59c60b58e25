"""KARE's graph of medical concepts, from three sources (Section 3.1.1, Appendix B)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ghar.envs.kare.graph.concepts import ConceptSets
from ghar.envs.kare.graph.from_engine import VISITS, AbstractSearch, EnginePart, corpus_part, model_part
from ghar.envs.kare.graph.from_graph import graph_part
from ghar.envs.kare.graph.near_duplicates import keep_different
from ghar.envs.kare.graph.triples import SOURCES, ConceptGraphs, union
from ghar.kg.paths import PathGraph, PathSearch
from ghar.llm.engine import Engine
from ghar.progress import progress

SIMILAR = 5  # sets that differ by fewer concepts are near duplicates (Appendix B.2, step 2)


@dataclass(frozen=True)
class ConstructSpec:
    """Of the biomedical graph (Appendix B.1): co_concepts, X; the longest path in edges; most paths a pair; the limit
    of the search on nodes."""

    co_concepts: int
    max_length: int
    max_paths: int
    max_nodes: int


@dataclass(frozen=True)
class ConstructionReport:
    """What went in and what came out, concepts and codes by name where something is missing.

    sets, kept: concept sets before and after the filter; empty: visits without a concept. alone: concepts in no kept
    set, about each of which an engine was asked by itself. without_node: concepts the graph does not know;
    without_triple: that no source knows anything of. pairs: what became of pairs of concepts. triples: different ones,
    by source and in all. asked: source -> what its questions took, and how the answers were.
    """

    concepts: int
    nameless: tuple[str, ...]
    sets: int
    empty: int
    kept: int
    alone: int
    without_node: tuple[str, ...]
    without_triple: tuple[str, ...]
    pairs: dict[str, int]
    triples: dict[str, int]
    asked: dict[str, dict[str, Any]]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def construct(
    sets: ConceptSets,
    spec: ConstructSpec,
    *,
    graph: PathGraph,
    nodes: Mapping[str, int],
    corpus: AbstractSearch | None,
    engine: Engine,
    folder: Path,
    seed: int,
    sources: Collection[str] = SOURCES,
    prompts: str = VISITS,
) -> tuple[ConceptGraphs, ConstructionReport]:
    """Every concept's graph G_c, their union G' (Eq. 1), and a report of what is missing.

    An engine is asked about each kept set, and about each concept that is in none of them: G' is of all concepts of the
    coding system, and a patient who comes later may have one that no training patient has.

    nodes: code -> node of `graph`. corpus: None leaves source (b) out, and the report shows that it did. folder: where
    each answer of the engine is stored the moment it comes, so that a job that was stopped goes on; it belongs to one
    engine, so its path should name the model. sources: the others are left out. prompts: as in `corpus_part`. The same
    seed gives the same graphs.
    """
    with progress(len(sets), "Filter concept sets") as advance:
        kept = keep_different(sets, SIMILAR)
        advance(len(sets))
    search = PathSearch(graph, max_length=spec.max_length, max_paths=spec.max_paths, max_nodes=spec.max_nodes)
    kg_part = graph_part(sets, search, nodes, spec.co_concepts if "graph" in sources else 0)
    covered = set(np.concatenate([sets[i] for i in kept.tolist()]).tolist())
    alone = [[name] for i, name in enumerate(sets.names) if i not in covered]
    about = [sets.names_of(i) for i in kept.tolist()] + alone
    parts: dict[str, EnginePart] = {}
    if corpus is not None and "corpus" in sources:
        parts["corpus"] = corpus_part(sets, about, corpus, engine, folder / "abstracts.jsonl", seed, prompts)
    if "model" in sources:
        parts["model"] = model_part(about, engine, folder / "concepts.jsonl", seed, prompts)
    every = {name: set() for name in sets.names}  # a concept that no source knows has an empty graph, too
    graphs = union({"graph": every | kg_part.of} | {source: part.of for source, part in parts.items()})
    counts = {source: sum(source in sources for sources in graphs.sources) for source in SOURCES}
    report = ConstructionReport(
        concepts=len(sets.names),
        nameless=sets.nameless,
        sets=len(sets),
        empty=sets.empty,
        kept=len(kept),
        alone=len(alone),
        without_node=kg_part.without_node,
        without_triple=tuple(name for name in sets.names if not len(graphs.of[name])),
        pairs=kg_part.pairs,
        triples=counts | {"all": len(graphs.triples)},
        asked={source: _describe_answers(part) for source, part in parts.items()},
    )
    return graphs, report


def _describe_answers(part: EnginePart) -> dict[str, Any]:
    """Cost and quality of one source's answers; a question without a readable answer is listed with the reason."""
    about = {"items that are no triple": part.dropped, "triples over the limit": part.surplus}
    return asdict(part.cost) | about | {"answers without a triple": part.without, "failed": part.failed}
