"""What systems that ask the run's graph share: cases cut for whoever reads them, and the graph with its meta-paths."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from ghar.data.cohort import Sample
from ghar.data.tasks.splits import Splits
from ghar.envs.case import Case, build_cases
from ghar.envs.questions import question_cases
from ghar.envs.records import Records
from ghar.envs.rollout import Corpus
from ghar.envs.summaries import summary_cases
from ghar.envs.system import Reader
from ghar.episode import Evidence, Retrieve
from ghar.kg.metapaths import MetaPath, metapaths
from ghar.kg.names import plain
from ghar.retrieval.build import build_retriever
from ghar.retrieval.wire import ServiceVersion


@dataclass(frozen=True)
class CutCases:
    """Cases whose record, question or text fits env.history_tokens as a reader counts."""

    records: Records

    def __call__(self, reader: Reader) -> Splits[Case]:
        if self.records.asks_questions:
            return question_cases(self.records, reader)
        if self.records.asks_summaries:
            return summary_cases(self.records, reader)
        splits = self.records.splits
        return Splits(*(tuple(self._cases(part, reader)) for part in (splits.train, splits.valid, splits.test)))

    def _cases(self, samples: Sequence[Sample], reader: Reader) -> list[Case]:
        records, env = self.records, self.records.config.env
        return build_cases(
            samples, records.task, records.names, style=env.prompts, budget=env.history_tokens, count=reader.count
        )


@dataclass(frozen=True)
class NodeQueries:
    """A graph's corpus for queries in a chart's words: it is asked by the names of the linked nodes.

    What a policy reads and writes stays in the chart's words.

    names: chart text -> name of the node, where they differ.
    """

    inner: Corpus
    names: Mapping[str, str]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One evidence a request, in order."""
        return self.inner.retrieve([replace(request, query=self.translated(request.query)) for request in requests])

    def translated(self, query: str) -> str:
        """The query with each chart text that it names, as whole words, replaced by the node's name; the longest first.
        Punctuation and letter case do not matter for what is replaced."""
        words, plain_words = query.split(), [plain(word) for word in query.split()]
        made, at = [], 0
        while at < len(words):
            most = min(self._longest.get(plain_words[at], 0), len(words) - at)
            size = next((n for n in range(most, 0, -1) if self._key(plain_words[at : at + n]) in self._names), 0)
            made += [self._names[self._key(plain_words[at : at + size])]] if size else [words[at]]
            at += size or 1
        return " ".join(made) if made else query

    @cached_property
    def _names(self) -> dict[str, str]:
        names: dict[str, str] = {}
        for text, name in self.names.items():
            names.setdefault(self._key([plain(word) for word in text.split()]), name)
        names.pop("", None)
        return names

    @cached_property
    def _longest(self) -> dict[str, int]:
        """First word -> most words of a chart text that begins with it."""
        longest: dict[str, int] = {}
        for text in self.names:
            words = [plain(word) for word in text.split()]
            longest[words[0] if words else ""] = max(len(words), longest.get(words[0] if words else "", 0))
        return longest

    @staticmethod
    def _key(words: Sequence[str]) -> str:
        return " ".join(word for word in words if word)


def graph_corpus(records: Records) -> tuple[Corpus, Sequence[MetaPath]]:
    """The run's graph, in this process or behind retriever.service, and its partitions. BadInput without a graph."""
    config, graph, retriever = records.config, records.primekg, records.config.retriever
    if retriever.service is None:
        kept = Path(config.data.cache) / "indexes"
        built = build_retriever(graph, retriever.kind, cache=kept, probes=retriever.probes)
        return _by_node_names(records, built), metapaths(graph)
    from ghar.retrieval.client import connect  # needs httpx

    expected = ServiceVersion(graph.fingerprint, retriever.kind, retriever.probes)
    credentialed = records.provenance().credentialed
    served = connect(retriever.service, expected, credentialed=credentialed, allow=config.privacy.allow)
    return _by_node_names(records, served), metapaths(graph)


def _by_node_names(records: Records, corpus: Corpus) -> Corpus:
    return NodeQueries(corpus, records.node_names) if records.node_names else corpus
