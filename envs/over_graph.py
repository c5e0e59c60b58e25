"""What systems that ask the run's graph share: cases cut for whoever reads them, and the graph with its meta-paths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.case import Case, build_cases
from envs.records import Records
from envs.rollout import Corpus
from envs.system import Reader
from ghar.data.cohort import Sample
from ghar.data.tasks.splits import Splits
from ghar.kg.metapaths import MetaPath, metapaths
from ghar.retrieval.build import build_retriever
from ghar.retrieval.wire import Version


@dataclass(frozen=True)
class CutCases:
    """Cases whose record fits env.history_tokens as a reader counts."""

    records: Records

    def __call__(self, reader: Reader) -> Splits[Case]:
        splits = self.records.splits
        return Splits(*(tuple(self._cases(part, reader)) for part in (splits.train, splits.valid, splits.test)))

    def _cases(self, samples: Sequence[Sample], reader: Reader) -> list[Case]:
        records, env = self.records, self.records.config.env
        return build_cases(
            samples, records.task, records.names, style=env.prompts, budget=env.history_tokens, count=reader.count
        )


def graph_corpus(records: Records) -> tuple[Corpus, Sequence[MetaPath]]:
    """The run's graph, in this process or behind retriever.service, and its partitions. BadInput without a graph."""
    config, graph, retriever = records.config, records.primekg, records.config.retriever
    if retriever.service is None:
        kept = Path(config.data.cache) / "indexes"
        return build_retriever(graph, retriever.kind, cache=kept, probes=retriever.probes), metapaths(graph)
    from ghar.retrieval.client import connect  # needs httpx

    expected = Version(graph.fingerprint, retriever.kind, retriever.probes)
    credentialed = records.credentialed(records.cohort)
    return connect(retriever.service, expected, credentialed=credentialed, allow=config.privacy.allow), metapaths(graph)
