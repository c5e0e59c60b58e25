"""The sources of knowledge that system.sources names, opened on one run's records: one corpus, one menu.

    graph          the run's knowledge graph, by meta-path
    past           the patient's own past (ghar/retrieval/patient_history.py), in eICU that of the hospital stay
    reports        what the reports of similar training patients say (ghar/retrieval/similar_stays.py)
    a system       its corpus, where `System.partitions` names parts of it: kare's communities
    a folder       texts of your own, a passage a line, a partition a file (NAME.txt)

A further source needs no edit: a folder, or a system of your own with partitions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ghar.data.cohort import Sample
from ghar.data.stay_records import stay_records
from ghar.envs import system as systems
from ghar.envs.ghar.joined_sources import JoinedSources, KnowledgeSource
from ghar.envs.graph_cases import graph_corpus
from ghar.envs.records import Records
from ghar.envs.rollout import Corpus
from ghar.episode import Evidence, Passage, Retrieve
from ghar.errors import BadInput
from ghar.retrieval import patient_history, similar_stays
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import StoreLayout
from ghar.retrieval.patient_history import PatientHistory
from ghar.retrieval.similar_stays import SimilarStays, index_stays
from ghar.retrieval.sparse import SparseIndex, build_sparse

GRAPH, PAST, REPORTS = "graph", "past", "reports"
ROWS = StoreLayout(size=1, overlap=0, numbers_apart=False, clock="time")


def open_sources(records: Records, names: Sequence[str]) -> tuple[Corpus, Sequence[Any]]:
    """What is retrieved from, and its partitions: the graph alone as it is, all else joined. BadInput for one that is
    named twice, or that is none."""
    if len(set(names)) < len(names) or not names:
        raise BadInput(f"system.sources={list(names)} must name each source once, and at least one.")
    if list(names) == [GRAPH]:
        return graph_corpus(records)
    sources = [_source(records, name) for name in names]
    joined = JoinedSources(tuple(sources))
    return joined, joined.partitions


def lacking(corpus: Corpus) -> dict[str, int]:
    """What sources do without, for the counts of a report: stays without a discharge summary, whose codes in words
    stand for it."""
    sources = corpus.sources if isinstance(corpus, JoinedSources) else ()
    source_counts = [source.corpus.notes.counts for source in sources if isinstance(source.corpus, SimilarStays)]
    missing = sum(counts.get("plain_records", 0) for counts in source_counts)
    return {"stays without a discharge summary, shown by their codes": missing} if missing else {}


def _source(records: Records, name: str) -> KnowledgeSource:
    if name == GRAPH:
        corpus, paths = graph_corpus(records)
        return KnowledgeSource(name, corpus, tuple((path.relation, path.text) for path in paths))
    if name == PAST:
        return KnowledgeSource(name, _own_past(records), tuple((part, part) for part in patient_history.PARTS))
    if name == REPORTS:
        return KnowledgeSource(name, _like_stays(records), tuple((part, part) for part in similar_stays.PARTS))
    if "/" in name:
        folder = FolderCorpus.read(Path(name))
        return KnowledgeSource(name, folder, tuple((part, part) for part in folder.names))
    made = _built(records, name)
    if not made.partitions:
        raise BadInput(f"system.sources: {name} has no partitions that could be asked by words.")
    return KnowledgeSource(name, made.corpus, tuple((part.relation, part.text) for part in made.partitions))


def _built(records: Records, name: str) -> systems.System[Any]:
    own: Any = systems.settings_of(name)(name=name)
    return systems.build(Records(replace(records.config, system=own)))


def _own_past(records: Records) -> PatientHistory:
    cache = Path(records.config.data.cache)
    stays = stay_records(records.charted, cache / "cohorts")
    store = build_event_store(stays.cohort, cache / "stores", None, ROWS, records.units)
    asked = {name: (sample, sample.history[-1]) for name, sample in samples_of(records).items()}
    return PatientHistory(
        store,
        {name: (stays.record(one.subject_id, visit.visit_id), visit.start) for name, (one, visit) in asked.items()},
    )


def _like_stays(records: Records) -> SimilarStays:
    reports = records.reports(None)
    return SimilarStays(index_stays(records.splits.train, reports), reports, samples_of(records))


def samples_of(records: Records) -> Mapping[str, Sample]:
    """Every sample by id."""
    splits = records.splits
    return {s.sample_id: s for part in (splits.train, splits.valid, splits.test) for s in part}


@dataclass(frozen=True, eq=False)
class FolderCorpus:
    """names: of the files, without .txt, in their order; starts: where the lines of each begin, and where all end."""

    names: tuple[str, ...]
    lines: tuple[str, ...]
    starts: tuple[int, ...]
    index: SparseIndex

    @classmethod
    def read(cls, folder: Path) -> FolderCorpus:
        """BadInput for a folder without texts, and for a file that is no UTF-8."""
        files = sorted(folder.glob("*.txt"))
        lines: list[str] = []
        starts = [0]
        for file in files:
            try:
                text = file.read_text(encoding="utf-8")
            except UnicodeDecodeError as problem:
                raise BadInput(f"{file} is no UTF-8 text (byte {problem.start}): save it as UTF-8.") from problem
            lines += [" ".join(line.split()) for line in text.split("\n") if line.strip()]
            starts.append(len(lines))
        if not lines:
            raise BadInput(f"system.sources: {folder} holds no NAME.txt with a passage a line.")
        return cls(tuple(file.stem for file in files), tuple(lines), tuple(starts), build_sparse("tfidf", lines))

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One evidence a request, in order: of each partition the `top_n` best lines."""
        return [self._answer(request) for request in requests]

    def _answer(self, request: Retrieve) -> Evidence:
        [query] = self.index.encode([request.query])
        passages = []
        for part in request.partitions if request.partitions is not None else range(len(self.names)):
            items = range(self.starts[part], self.starts[part + 1])
            [(hits, scores)] = self.index.search([query], items, request.top_n)
            passages += [
                Passage(self.lines[item], "line", part, score, item)
                for item, score in zip(hits.tolist(), scores.tolist(), strict=True)
            ]
        return Evidence(tuple(sorted(passages, key=lambda p: (-round(p.score, 5), p.partition, p.ident))))
