"""One corpus of corpora: several sources behind one menu of partitions, asked with one request.

A source is a corpus with partitions: a graph with its meta-paths, communities, a patient's own past, the reports of
similar patients, a folder of texts of your own. Partitions are numbered through, source after source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from ghar.episode import Evidence, Passage, Retrieve


class SourceCorpus(Protocol):
    """What a source is asked through."""

    def retrieve(self, requests: Sequence[Any]) -> list[Evidence]: ...


@dataclass(frozen=True)
class MenuPart:
    """A line of the menu. relation: by which rules and reports know it; source: whose it is."""

    index: int
    relation: str
    text: str
    source: str

    @property
    def label(self) -> str:
        return self.text


@dataclass(frozen=True, eq=False)
class KnowledgeSource:
    """name: as system.sources has it. parts: (relation, text) of each of its partitions, as the corpus numbers them."""

    name: str
    corpus: SourceCorpus
    parts: tuple[tuple[str, str], ...]


@dataclass(frozen=True, eq=False)
class JoinedSources:
    """Sources behind one menu. A request without partitions is put to all of all sources."""

    sources: tuple[KnowledgeSource, ...]

    @cached_property
    def partitions(self) -> tuple[MenuPart, ...]:
        """The menu."""
        lines = [(relation, text, source.name) for source in self.sources for relation, text in source.parts]
        return tuple(MenuPart(index, *line) for index, line in enumerate(lines))

    @cached_property
    def _begins(self) -> list[int]:
        sizes = [len(source.parts) for source in self.sources]
        return [sum(sizes[:i]) for i in range(len(sizes))]

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One evidence a request, in order; passages of different sources stand in the order of the sources, since
        their scores cannot be compared. ValueError for a partition that does not exist."""
        by_request: list[list[Passage]] = [[] for _ in requests]
        for begin, source in zip(self._begins, self.sources, strict=True):
            own = range(begin, begin + len(source.parts))
            places, asked = [], []
            for place, request in enumerate(requests):
                wanted = _inside(request, own, len(self.partitions))
                if wanted is None or wanted:
                    places.append(place)
                    asked.append(replace(request, partitions=wanted))
            for place, evidence in zip(places, source.corpus.retrieve(asked) if asked else (), strict=True):
                by_request[place] += [_renumbered(passage, begin) for passage in evidence.passages]
        return [Evidence(_without_repetitions(passages)) for passages in by_request]


def _without_repetitions(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    first: dict[str, Passage] = {}
    for passage in passages:
        first.setdefault(passage.text, passage)
    return tuple(first.values())


def _inside(request: Retrieve, own: range, all_of_them: int) -> tuple[int, ...] | None:
    """The partitions of one source that a request names, as the source counts them; None: all of them."""
    if request.partitions is None:
        return None
    if unknown := [p for p in request.partitions if not 0 <= p < all_of_them]:
        raise ValueError(f"partition {unknown[0]} does not exist; ids run from 0 to {all_of_them - 1}")
    return tuple(p - own.start for p in request.partitions if p in own)


def _renumbered(passage: Passage, begin: int) -> Passage:
    return replace(passage, partition=passage.partition + begin) if passage.partition >= 0 else passage
