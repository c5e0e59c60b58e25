"""Triples and the graph that belongs to each medical concept (Section 3.1.1, KARE).

A concept is the name of a code as patients' texts show it, normalised by `concept_name`; entities and relations of
triples are normalised the same way, so that the three sources meet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ghar.errors import BadInput
from ghar.kg.names import plain
from ghar.storage import Strings, new_folder, read_array, read_meta, read_strings, write_arrays, write_meta

FORMAT = "concept-graphs-1"
SOURCES = ("graph", "corpus", "model")
# A decimal number, a range of two numbers, a percentage, a bound ("<= 0.1", "> 2"); no part of a code ("E11.9").
NUMBER = re.compile(
    r"(?<![\w.,-])(\d+\.\d+(?:-\d+\.\d+)?%?|\d+%|\d+-\d+%?(?![\w,-])|[<>]=?\s*\d+(?:\.\d+)?%?)(?!\.?\d)"
)


class Triple(NamedTuple):
    """A fact: `head` stands in `relation` to `tail`; the roles are never exchanged."""

    head: str
    relation: str
    tail: str


@dataclass(frozen=True, eq=False)
class ConceptGraphs:
    """The graphs G_c of all concepts and their union G' (Section 3.1.1, KARE).

    triples: T unique ones, ascending. sources: for each the sources of `SOURCES` that state it.
    of: concept -> ascending ids (i32) of its triples; a concept no source knows has none, and is a key all the same.
    """

    triples: tuple[Triple, ...]
    sources: tuple[frozenset[str], ...]
    of: dict[str, np.ndarray]

    def write(self, folder: Path) -> None:
        """Write into `folder`, whole or not at all."""
        words = sorted({word for triple in self.triples for word in triple})
        number = {word: i for i, word in enumerate(words)}
        ids = [[number[word] for word in triple] for triple in self.triples]
        flags = [[source in sources for source in SOURCES] for sources in self.sources]
        concepts = sorted(self.of)
        lists = [self.of[concept] for concept in concepts]
        with new_folder(folder) as temporary:
            arrays = {
                "words": Strings.of(words),
                "triples": np.array(ids, np.int32).reshape(-1, 3),
                "sources": np.array(flags, bool).reshape(-1, len(SOURCES)),
                "concepts": Strings.of(concepts),
                "of_start": np.cumsum([0, *map(len, lists)]),
                "of": np.concatenate([np.empty(0, np.int32), *lists]).astype(np.int32),
            }
            write_arrays(temporary, arrays)
            write_meta(temporary, {"format": FORMAT})

    @classmethod
    def read(cls, folder: Path) -> ConceptGraphs:
        """What `write` wrote; `BadInput` names a missing or damaged file."""
        if read_meta(folder).get("format") != FORMAT:
            raise BadInput(f"{folder} holds no concept graphs of format {FORMAT}; delete it and build it again.")
        words = list(read_strings(folder, "words"))
        triples = tuple(Triple(words[h], words[r], words[t]) for h, r, t in read_array(folder, "triples").tolist())
        kinds: dict[tuple[bool, ...], frozenset[str]] = {}
        sources = [
            kinds.setdefault(tuple(row), frozenset(np.array(SOURCES)[row].tolist()))
            for row in read_array(folder, "sources").tolist()
        ]
        starts, ids = read_array(folder, "of_start"), np.array(read_array(folder, "of"))
        lists = np.split(ids, starts[1:-1]) if len(starts) > 1 else []
        return cls(triples, tuple(sources), dict(zip(read_strings(folder, "concepts"), lists, strict=True)))


def concept_name(text: str) -> str:
    """How a concept, an entity or a relation is written in triples ("" for a text without a letter or digit).

    Numbers stay whole: "Sodium Chloride 0.9% Flush" is "sodium chloride 0.9% flush", a BMI of 31.0-31.9 stays one.
    So do bounds: of norepinephrine more than 0.1 micrograms/kg/min ("> 0.1") is another treatment than less ("<= 0.1").
    """
    parts = ("".join(part.split()) if i % 2 else plain(part) for i, part in enumerate(NUMBER.split(text)))
    return " ".join(filter(None, parts))


def make_triple(head: str, relation: str, tail: str) -> Triple | None:
    """The triple in normalised names; None where a part is empty or head and tail are the same."""
    triple = Triple(concept_name(head), concept_name(relation), concept_name(tail))
    return triple if all(triple) and triple.head != triple.tail else None


def union(parts: Mapping[str, Mapping[str, Iterable[Triple]]]) -> ConceptGraphs:
    """Eq. 1, KARE: a concept's graph is the union of its graphs in every source, and G' that of all concepts.

    parts: source of `SOURCES` -> concept -> triples, in any order and repeated as they may be.
    """
    unknown = sorted(set(parts) - set(SOURCES))
    if unknown:
        raise ValueError(f"{unknown[0]} is no source of triples: there are {', '.join(SOURCES)}")
    sources_of: dict[Triple, set[str]] = {}
    own: dict[str, set[Triple]] = {}
    for source, concepts in parts.items():
        for concept, triples in concepts.items():
            mine = own.setdefault(concept, set())
            for triple in triples:
                mine.add(triple)
                sources_of.setdefault(triple, set()).add(source)
    ordered = sorted(sources_of)
    number = {triple: i for i, triple in enumerate(ordered)}
    of = {concept: np.array(sorted(map(number.__getitem__, own[concept])), np.int32) for concept in sorted(own)}
    return ConceptGraphs(tuple(ordered), tuple(frozenset(sources_of[triple]) for triple in ordered), of)
