"""Concept sets: which medical concepts each visit of the training patients holds (Appendices B.1 and B.2, KARE), and
which other concepts the coding system has: the graph is of all of them (Section 3.1.1), patients tell what goes
together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from ghar.envs.kare.graph.triples import concept_name
from ghar.errors import BadInput


class CodedVisit(Protocol):
    """The codes of one visit, or what one question mentions."""

    @property
    def visit_id(self) -> int: ...

    @property
    def diagnoses(self) -> tuple[str, ...]: ...

    @property
    def procedures(self) -> tuple[str, ...]: ...

    @property
    def medications(self) -> tuple[str, ...]: ...


class CodedSample(Protocol):
    """A sample of visits, or a question as one visit."""

    @property
    def subject_id(self) -> int: ...

    @property
    def history(self) -> Sequence[CodedVisit]: ...


@dataclass(frozen=True, eq=False)
class ConceptSets:
    """S sets over C concepts, one per visit, in the order in which the samples first show the visits.

    names: C concept names, ascending, those in no set among them. Set i holds concept[start[i]:start[i + 1]] (start
    i64[S+1]; concept i32, ascending in a set). patient: i64[S]. codes: concept -> its codes, ascending: codes of one
    name are one concept.
    nameless: codes whose text has no letter or digit, which are no concepts; empty: visits without a concept, which
    make no set.
    """

    names: tuple[str, ...]
    start: np.ndarray
    concept: np.ndarray
    patient: np.ndarray
    codes: Mapping[str, tuple[str, ...]]
    nameless: tuple[str, ...] = ()
    empty: int = 0

    def __len__(self) -> int:
        return len(self.patient)

    def __getitem__(self, i: int) -> np.ndarray:
        return self.concept[self.start[i] : self.start[i + 1]]

    def names_of(self, i: int) -> list[str]:
        """The concepts of set i by name."""
        return [self.names[c] for c in self[i].tolist()]

    @cached_property
    def number(self) -> dict[str, int]:
        """Concept name -> its position in `names`."""
        return {name: i for i, name in enumerate(self.names)}


def concept_sets(
    samples: Iterable[CodedSample], name_of: Callable[[str], str], coding: Iterable[str] = ()
) -> ConceptSets:
    """The set of each visit that `samples`, those of the training split alone, show.

    name_of: text of a code as patients' texts show it. coding: further codes of conditions, procedures and drugs whose
    concepts the graph is to know, whoever has them. A visit that several samples show counts once, with every code
    that one of them shows. BadInput when nothing is left.
    """
    visits: dict[int, tuple[int, set[str]]] = {}
    for sample in samples:
        for visit in sample.history:
            _, codes = visits.setdefault(visit.visit_id, (sample.subject_id, set()))
            codes.update(visit.diagnoses, visit.procedures, visit.medications)
    seen = set().union(*(codes for _, codes in visits.values()))
    every = sorted(seen.union(coding))
    name = {code: concept_name(name_of(code)) for code in every}
    own: dict[str, list[str]] = {}
    for code in every:
        own.setdefault(name[code], []).append(code)
    nameless = tuple(own.pop("", ()))
    if not any(name[code] for code in seen):
        raise BadInput(
            "The training samples show no visit with a code that has a name: choose a task whose samples do."
        )
    names = tuple(sorted(own))
    number = {concept: i for i, concept in enumerate(names)}
    sets, patients = [], []
    for patient, codes in visits.values():
        concepts = sorted({number[name[code]] for code in codes if name[code]})
        if concepts:
            sets.append(np.array(concepts, np.int32))
            patients.append(patient)
    start = np.cumsum([0, *map(len, sets)])
    own_codes = {concept: tuple(codes) for concept, codes in own.items()}
    patient = np.array(patients, np.int64)
    return ConceptSets(names, start, np.concatenate(sets), patient, own_codes, nameless, len(visits) - len(sets))


def co_occurring(sets: ConceptSets, top: int) -> list[list[int]]:
    """For each concept the `top` concepts that most patients have beside it (Appendix B.1, X = 20), most first.

    A patient counts once however often he has both; among equals the lower number wins; concepts that never occur with
    it are not listed.
    """
    from scipy import sparse

    _, person = np.unique(sets.patient, return_inverse=True)
    row = np.repeat(person, np.diff(sets.start))
    shape = (int(person.max()) + 1, len(sets.names))
    has: Any = sparse.csr_matrix((np.ones(len(row), np.int32), (row, sets.concept)), shape=shape)
    has.data[:] = 1  # scipy has added the visits of a patient up
    together: Any = (has.T @ has).tocsr()
    neighbours = []
    for concept in range(len(sets.names)):
        part = slice(together.indptr[concept], together.indptr[concept + 1])
        others, counts = together.indices[part], together.data[part]
        order = np.lexsort((others, -counts))
        neighbours.append([o for o in others[order].tolist() if o != concept][:top])
    return neighbours
