"""The report ranker: which earlier stays are like this one, by the codes of their tables (section 3.3, EXPRAG).

Eqs. 4-6: the Jaccard index of the sets of diagnoses, of medications and of procedures; Eq. 7: their weighted sum. All
stays are compared, so a ranking is exact. A set of codes times the matrix of stays is a sparse product whose entries
are all one, so only their places are kept: for each code the stays that have it, memory-mapped.

The paper leaves open, and here it is so: two empty sets have nothing in common (0); a stay with similarity 0 is no
experience and never ranked; equal similarities go to the stay whose report is newer, then to the lower stay id. Codes
carry their vocabulary, so that ICD-9 and ICD-10 stay apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from ghar.data.visit_codes import Visit
from ghar.storage import Strings, new_folder, read_array, read_meta, read_strings, write_arrays, write_meta

KINDS = ("diagnoses", "medications", "procedures")  # of Eqs. 4, 5, 6
Scheme = Literal["uniform", "task_focused", "complementary"]
Weights = tuple[float, float, float]
DECIMALS = 12  # sums of three fractions that are equal in truth may differ in the last bits
FORMAT = 1
GATE, LENGTHS, ROUNDED = 0.5, 10, 4  # of the released code, see `rank_by_thirds`


@dataclass(frozen=True)
class ReportQuery:
    """Whose experience is looked for: the codes of each of KINDS that may be used.

    subject_id: no stay of this patient is ever ranked. before: nor any report available then or later (microseconds);
    None where the times of different patients cannot be compared, as in MIMIC, which shifts each patient's dates.
    """

    subject_id: int
    before: int | None
    codes: tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...]]


@dataclass(frozen=True, eq=False)
class CodeSets:
    """One of KINDS: code c (names sorted) is in the sets of stays[start[c]:start[c+1]]. sizes: i32[N], of the sets."""

    names: Strings
    start: np.ndarray
    stays: np.ndarray
    sizes: np.ndarray

    def overlap(self, codes: Sequence[str]) -> tuple[np.ndarray, int]:
        """i64[N], codes shared with each stay; and how many different codes were asked for."""
        wanted = set(codes)
        numbers = [number for code in sorted(wanted) if (number := self.names.find(code)) is not None]
        lists = [self.stays[self.start[c] : self.start[c + 1]] for c in numbers]
        together = np.concatenate(lists) if lists else np.empty(0, np.int32)
        return np.bincount(together, minlength=len(self.sizes)), len(wanted)

    def jaccard(self, codes: Sequence[str]) -> np.ndarray:
        """f64[N]: |A ∩ B| / |A ∪ B| with each stay (Eqs. 4-6)."""
        shared, asked = self.overlap(codes)
        return shared / np.maximum(self.sizes + asked - shared, 1)


@dataclass(frozen=True, eq=False)
class ReportIndex:
    """Stays with a report, the newest first: ids, patients and when each report was there (i64[N], microseconds)."""

    visit_id: np.ndarray
    subject_id: np.ndarray
    available: np.ndarray
    sets: tuple[CodeSets, CodeSets, CodeSets]

    def __len__(self) -> int:
        return len(self.visit_id)

    def save(self, folder: Path) -> None:
        """Write the index as `folder`, whole or not at all."""
        with new_folder(folder) as half:
            write_arrays(half, {name: getattr(self, name) for name in ("visit_id", "subject_id", "available")})
            for kind, sets in zip(KINDS, self.sets, strict=True):
                arrays = {"names": sets.names, "start": sets.start, "stays": sets.stays, "sizes": sets.sizes}
                write_arrays(half, {f"{kind}.{name}": array for name, array in arrays.items()})
            write_meta(half, {"format": FORMAT, "stays": len(self)})

    @classmethod
    def load(cls, folder: Path) -> ReportIndex:
        """Open a saved index memory-mapped; `BadInput` names what is missing or damaged."""
        read_meta(folder)
        sets = [
            CodeSets(
                read_strings(folder, f"{kind}.names"),
                *(read_array(folder, f"{kind}.{name}") for name in ("start", "stays", "sizes")),
            )
            for kind in KINDS
        ]
        visit_id, subject_id, available = (read_array(folder, name) for name in ("visit_id", "subject_id", "available"))
        return cls(visit_id, subject_id, available, (sets[0], sets[1], sets[2]))


@dataclass(frozen=True, eq=False)
class CodeEntries:
    """Which stay has which code: stay[i] (row of a stay) has names[code[i]]; repeated entries count once."""

    stay: np.ndarray
    code: np.ndarray
    names: Sequence[str]


def entries_of(histories: Sequence[Sequence[Visit]], kind: str) -> CodeEntries:
    """One of KINDS of stays, each of which is compared by all visits of its history."""
    numbers: dict[str, int] = {}
    codes = [[code for visit in visits for code in getattr(visit, kind)] for visits in histories]
    code = np.array([numbers.setdefault(code, len(numbers)) for own in codes for code in own], np.int64)
    return CodeEntries(np.repeat(np.arange(len(codes)), [len(own) for own in codes]), code, list(numbers))


def build_reports(
    visit_id: np.ndarray, subject_id: np.ndarray, available: np.ndarray, entries: Mapping[str, CodeEntries]
) -> ReportIndex:
    """Index stays (i64[N] each, in any order) by the entries of each of KINDS."""
    order = np.lexsort((visit_id, -available))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    made = [_code_sets(entries[kind], place) for kind in KINDS]
    return ReportIndex(visit_id[order], subject_id[order], available[order], (made[0], made[1], made[2]))


def _code_sets(entries: CodeEntries, place: np.ndarray) -> CodeSets:
    names = np.asarray(entries.names, dtype=object)
    by_name = np.argsort(names, kind="stable")
    number = np.empty(len(names), np.int64)
    number[by_name] = np.arange(len(names))
    stays = len(place)
    key = np.unique(number[entries.code] * max(stays, 1) + place[entries.stay])  # by code, then by stay
    code, stay = np.divmod(key, max(stays, 1))
    start = np.searchsorted(code, np.arange(len(names) + 1))
    sizes = np.bincount(stay, minlength=stays).astype(np.int32)
    return CodeSets(Strings.of(names[by_name].tolist()), start, stay.astype(np.int32), sizes)


def weights(scheme: Scheme, kind: str) -> Weights:
    """λ1, λ2, λ3 of Eq. 7: a third each; all for `kind`, what the task asks for; or one for each of the other two.

    The paper's `uniform` is its default; its Table 5 compares the three."""
    if scheme == "uniform":
        return (1 / 3, 1 / 3, 1 / 3)
    focused = [float(kind == own) for own in KINDS]
    first, second, third = focused if scheme == "task_focused" else [1 - x for x in focused]
    return (first, second, third)


def similarities(index: ReportIndex, query: ReportQuery, weight: Weights) -> np.ndarray:
    """f64[N]: τ of Eq. 7 with every stay of the index, those that must not be offered included."""
    total = np.zeros(len(index))
    for own, sets, codes in zip(weight, index.sets, query.codes, strict=True):
        if own:
            total += own * sets.jaccard(codes)
    return total


def rank(index: ReportIndex, query: ReportQuery, weight: Weights, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the `top_k` most similar stays that may be offered, best first, and their τ, rounded to 12 decimals."""
    return best_rows(similarities(index, query, weight), allowed_stays(index, query), top_k)


def rank_by_thirds(index: ReportIndex, query: ReportQuery, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """What the released code does in place of Eq. 7: a third of `top_k` from each modality's own ranking.

    Each Jaccard index is rounded to 4 decimals, and 0 where one set has over ten times as many codes as the other and
    does not hold all of it; a stay counts only where the three add up to 0.5 or more. Stays come in the order of KINDS,
    each once, with that modality's index; ties as in `rank`.
    """
    each = [_released_jaccard(sets, codes) for sets, codes in zip(index.sets, query.codes, strict=True)]
    # the sum of rounded numbers, rounded again: 0.1667 + 0.3333 reaches the gate
    allowed = allowed_stays(index, query) & (np.round(sum(each), ROUNDED) >= GATE)
    rows: dict[int, float] = {}
    for scores in each:
        for row, score in zip(*best_rows(scores, allowed, top_k // 3), strict=True):
            rows.setdefault(int(row), float(score))
    return np.fromiter(rows, np.int64), np.fromiter(rows.values(), np.float64)


def _released_jaccard(sets: CodeSets, codes: Sequence[str]) -> np.ndarray:
    shared, asked = sets.overlap(codes)
    unlike = (LENGTHS * asked < sets.sizes) & (shared < asked)
    unlike |= (LENGTHS * sets.sizes < asked) & (shared < sets.sizes)
    ratio = shared / np.maximum(sets.sizes + asked - shared, 1)
    return np.where(unlike, 0.0, np.round(ratio, ROUNDED))


def allowed_stays(index: ReportIndex, query: ReportQuery) -> np.ndarray:
    """bool[N]: stays of other patients whose report was there before the query's time."""
    allowed = np.asarray(index.subject_id != query.subject_id)
    if query.before is not None:  # newest first, so what is too new stands in front
        allowed[: np.searchsorted(-index.available, -query.before, side="right")] = False
    return allowed


def best_rows(scores: np.ndarray, allowed: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the highest positive scores; among equal ones the lower row, which is the newer report."""
    rows = np.flatnonzero(allowed & (scores > 0))
    row_scores = scores[rows]
    if len(rows) > top_k > 0:
        kth = np.partition(row_scores, len(row_scores) - top_k)[len(row_scores) - top_k]
        near = row_scores >= kth - 10.0**-DECIMALS
        rows, row_scores = rows[near], row_scores[near]
    row_scores = np.round(row_scores, DECIMALS)
    order = np.argsort(-row_scores, kind="stable")[:top_k]
    return rows[order], row_scores[order]
