"""Baselines that are given all evidence: whatever the generated world's graph states about a sample's codes.

No agent decides what to retrieve. A generated graph states numbers in names of nodes ("grade 7 course"). The evidence
of a code is the largest number behind each path of at most two relations from its node. It serves codes that few
training visits show.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ghar.data.cohort import Sample, Visit
from ghar.envs.baselines.features import SCOPES, CodeEvidence, Scope, TrainingData, codes_of, vocabulary
from ghar.envs.baselines.severities import SeverityTable, fit_severities
from ghar.envs.baselines.tables import Boosting, fit_boosting
from ghar.errors import BadInput
from ghar.kg.graph import KnowledgeGraph

STATED = re.compile(r"grade (\d+) (\w+)")
FREQUENT = 10  # training visits that show a code which needs no evidence


@dataclass(frozen=True, eq=False)
class GraphEvidence:
    """The graph and the nodes of codes. Statements about a code are read once."""

    graph: KnowledgeGraph
    nodes: Mapping[str, int]
    _read: dict[str, Mapping[str, int]] = field(default_factory=dict, repr=False)

    def of(self, code: str) -> Mapping[str, int]:
        """Look up path -> largest number that it leads to; empty for a code without a node."""
        if code not in self._read:
            numbers: dict[str, int] = {}
            for path, number in self._statements(self.nodes.get(code)):
                numbers[path] = max(number, numbers.get(path, number))
            self._read[code] = numbers
        return self._read[code]

    def _statements(self, node: int | None) -> Iterator[tuple[str, int]]:
        """Numbers one and two relations away from `node`."""
        for relation, other in self._around(node):
            if stated := STATED.fullmatch(self.graph.names[other]):
                yield f"{relation}: {stated[2]}", int(stated[1])
                continue
            for further, end in self._around(other):
                if end != node and (stated := STATED.fullmatch(self.graph.names[end])):
                    yield f"{relation} > {further}: {stated[2]}", int(stated[1])

    def _around(self, node: int | None) -> Iterator[tuple[str, int]]:
        """Relation and node of every neighbour."""
        graph = self.graph
        for edge in () if node is None else graph.edges_of(node).tolist():
            other = graph.tail[edge] if graph.head[edge] == node else graph.head[edge]
            yield graph.displays[graph.display[edge]], int(other)


@dataclass(frozen=True, eq=False)
class BoostingOnEvidence:
    """Boosting on counts, and on the largest number of each path over a sample's codes."""

    boosting: Boosting
    columns: Columns
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        return self.boosting.shares(samples, self.columns(samples))


@dataclass(frozen=True, eq=False)
class Columns:
    """Evidence as columns: a path, of all codes or of those that are not `frequent`, of the newest visit or of all."""

    evidence: CodeEvidence
    frequent: Mapping[str, int]
    paths: Mapping[str, int]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        """f64[samples, 4 paths]: largest numbers, NaN where none is stated."""
        return np.hstack([self._table(samples, scope, rare) for scope in SCOPES for rare in (False, True)])

    def _table(self, samples: Sequence[Sample], scope: Scope, rare: bool) -> np.ndarray:
        table = np.full((len(samples), len(self.paths)), np.nan)
        for row, sample in zip(table, samples, strict=True):
            visits = sample.history if scope == "all" else sample.history[-1:]
            codes = {code for visit in visits for code in codes_of(visit)}
            asked = codes - self.frequent.keys() if rare else codes
            stated = (pair for code in asked for pair in self.evidence.of(code).items())
            for path, number in stated:
                if path in self.paths:
                    row[self.paths[path]] = np.fmax(row[self.paths[path]], number)
        return table


def fit_boosting_evidence(data: TrainingData) -> BoostingOnEvidence:
    """Boosting on counts and on evidence. BadInput where no graph states any."""
    evidence = _evidence(data)
    codes = {code for sample in data.train for visit in sample.history for code in codes_of(visit)}
    paths = sorted({path for code in codes for path in evidence.of(code)})
    columns = Columns(evidence, vocabulary(data.train, least=FREQUENT), {path: i for i, path in enumerate(paths)})
    boosting = fit_boosting(data, further=columns)
    return BoostingOnEvidence(boosting, columns, {**boosting.about, "paths": len(paths)})


@dataclass(frozen=True, eq=False)
class SeveritiesOfEvidence:
    """A table with a severity for each frequent code, and for each number behind each path of the others."""

    severities: SeverityTable
    evidence: CodeEvidence
    frequent: Mapping[str, int]
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        return self.severities(with_statements(samples, self.evidence, self.frequent))


def fit_severities_evidence(data: TrainingData) -> SeveritiesOfEvidence:
    """The table of severities, with statements in place of rare codes. BadInput where no graph states any."""
    evidence, frequent = _evidence(data), vocabulary(data.train, least=FREQUENT)
    train, valid = (with_statements(part, evidence, frequent) for part in (data.train, data.valid))
    fitted = fit_severities(replace(data, train=train, valid=valid))
    return SeveritiesOfEvidence(fitted, evidence, frequent, fitted.about)


def with_statements(
    samples: Sequence[Sample], evidence: CodeEvidence, frequent: Mapping[str, int]
) -> tuple[Sample, ...]:
    """Put what the graph states about codes that are not `frequent` in their place, as codes of their own."""

    def visit(one: Visit) -> Visit:
        rare = [code for code in codes_of(one) if code not in frequent]
        stated = {f"{path} {number}" for code in rare for path, number in evidence.of(code).items()}
        kinds = ([c for c in own if c in frequent] for own in (one.diagnoses, one.procedures, one.medications))
        diagnoses, procedures, medications = map(tuple, kinds)
        return replace(one, diagnoses=(*diagnoses, *sorted(stated)), procedures=procedures, medications=medications)

    return tuple(replace(sample, history=tuple(map(visit, sample.history))) for sample in samples)


def _evidence(data: TrainingData) -> CodeEvidence:
    evidence = data.evidence()
    if evidence is None:
        raise BadInput(
            "boosting_evidence and severities_evidence read the numbers that a generated world's graph states, and "
            "these patients come with none: leave both out of eval.variants."
        )
    return evidence
