"""A table of one severity per code, of which the worst decides: coordinate ascent on the training labels.

The demo world's outcomes follow from the highest severity of a visit. This baseline is told that, and nothing else: no
graph, no names. Whatever it reaches, the training patients themselves tell.

A sample's grade is the highest severity of its codes, and labels follow their own law in each grade. The table and the
law are raised in turns: each code's severity to the value that makes the labels of its samples most probable given all
others, until no code moves; then the law to what the grades show. Several starts, since this climbs to the next peak.

Codes that few training visits show can explain their labels away, and say nothing of a test sample. So the table is
also fitted with one severity for all of them together; validation chooses from how many visits on a code has its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from scipy.sparse import csr_array, hstack

from ghar.data.cohort import Sample
from ghar.envs.baselines.features import SCOPES, Scope, TrainingData, codes_of, encode_presence, vocabulary

STARTS = (None, 0.0, 0.1, 0.25)  # quantile of the labels of a code's samples; None: every severity is 0
OWN = (1, 3, 10)  # training visits that show a code which has a severity of its own
RIGHT, WEIGHT = 0.9, 5.0  # before anything is seen: how often a label is its grade, and how many samples that counts


@dataclass(frozen=True, eq=False)
class SeverityTable:
    """table: i64[codes]. law: f64[grades, classes], label probabilities of each grade."""

    table: np.ndarray
    law: np.ndarray
    place: Mapping[str, int]
    scope: Scope
    about: Mapping[str, Any]

    def __call__(self, samples: Sequence[Sample]) -> np.ndarray:
        return self.law[grades_of(with_others(samples, self.place, self.scope), self.table)]


def fit_severities(data: TrainingData) -> SeverityTable:
    """The best of all starts and scopes on the validation samples; the first of equals."""
    best, reached = None, -np.inf
    places = [vocabulary(data.train, least=least) for least in OWN]
    for (least, place), scope in product(zip(OWN, places, strict=True), SCOPES):
        codes = with_others(data.train, place, scope)
        for start in STARTS:
            table = first_table(codes, data.labels, start)
            table, law = climb(codes, data.labels, table, data.classes, data.settings.sweeps)
            about = {"visits": scope, "start": "zero" if start is None else f"quantile {start}", "own from": least}
            model = SeverityTable(table, law, place, scope, about)
            score = data.likelihood(model)
            if score > reached:
                best, reached = model, score
    assert best is not None  # a likelihood is never -inf: it is clipped
    return best


def with_others(samples: Sequence[Sample], place: Mapping[str, int], scope: Scope) -> csr_array:
    """f64[samples, codes + 1]: `encode_presence`, and last whether a visit in scope shows a code that has no column."""
    visits = [sample.history if scope == "all" else sample.history[-1:] for sample in samples]
    other = [any(code not in place for visit in own for code in codes_of(visit)) for own in visits]
    return csr_array(hstack([encode_presence(samples, place, scope), csr_array(np.array(other, dtype=float)[:, None])]))


def grades_of(codes: csr_array, table: np.ndarray) -> np.ndarray:
    """i64[samples]: the highest severity of each; 0 of a sample without codes."""
    grades = np.zeros(_size(codes)[0], dtype=np.int64)
    rows, columns = codes.nonzero()
    np.maximum.at(grades, rows, table[columns])
    return grades


def first_table(codes: csr_array, labels: np.ndarray, start: float | None) -> np.ndarray:
    """i64[codes]: where the climb begins. Without noise a severity is at most the lowest label of its samples."""
    table = np.zeros(_size(codes)[1], dtype=np.int64)
    if start is not None:
        for code, rows in enumerate(_rows_of(codes)):
            if len(rows):
                table[code] = np.quantile(labels[rows], start, method="lower")
    return table


def climb(
    codes: csr_array, labels: np.ndarray, table: np.ndarray, classes: int, sweeps: int
) -> tuple[np.ndarray, np.ndarray]:
    """The table and the law from where no sweep moves a code; frequent codes first, the lowest of equal severities."""
    rows_of = _rows_of(codes)
    order = np.argsort([-len(rows) for rows in rows_of], kind="stable")
    table, grades = table.copy(), np.arange(classes)
    tally = np.zeros((_size(codes)[0], classes), dtype=np.int64)  # how many codes of a sample have each severity
    tally[:, 0] = 1  # so that a sample without codes has grade 0
    rows, columns = codes.nonzero()
    np.add.at(tally, (rows, table[columns]), 1)
    for _ in range(sweeps):
        chances, before = np.log(law_of(_highest(tally), labels, classes)), table.copy()
        for code in order:
            rows = rows_of[code]
            tally[rows, table[code]] -= 1
            grade = np.maximum(_highest(tally[rows])[:, None], grades)  # of each sample, for each severity of the code
            table[code] = chances[grade, labels[rows][:, None]].sum(axis=0).argmax()
            tally[rows, table[code]] += 1
        if (table == before).all():
            break
    return table, law_of(_highest(tally), labels, classes)


def law_of(grades: np.ndarray, labels: np.ndarray, classes: int) -> np.ndarray:
    """f64[grades, classes]: how often each label stands with each grade, and as if it had been seen WEIGHT times more
    that a label is its grade in RIGHT of all cases."""
    prior = np.full((classes, classes), (1 - RIGHT) / classes) + RIGHT * np.eye(classes)
    seen = np.zeros((classes, classes))
    np.add.at(seen, (grades, labels), 1.0)
    law = seen + WEIGHT * prior
    return law / law.sum(axis=1, keepdims=True)


def _size(codes: Any) -> tuple[int, int]:
    """(samples, codes)"""
    return codes.shape


def _rows_of(codes: csr_array) -> list[np.ndarray]:
    """The samples that show each code."""
    rows, columns = codes.nonzero()
    ends = np.cumsum(np.bincount(columns, minlength=_size(codes)[1]))
    return np.split(rows[np.argsort(columns, kind="stable")], ends[:-1])


def _highest(tally: np.ndarray) -> np.ndarray:
    """i64[rows]: the highest severity that is there."""
    return tally.shape[1] - 1 - (tally[:, ::-1] > 0).argmax(axis=1)
