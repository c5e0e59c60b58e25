"""A patient's own past as a corpus: what was recorded before the newest visit began, asked by words.

Three partitions: what is older than `RECENT_DAYS` (the oldest row first among equals), what is newer (the newest
first), and numbers: of each measure how it has moved over its last `LAST` values, whatever it did before. Rows are read
from a store of events (event_store.py) without vectors, whatever its size; a query is compared with what codes are
called, by TF-IDF over all codes of the cohort, and only with codes of the patient's own rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

import numpy as np

from ghar.data.views.events import number_text
from ghar.episode import Evidence, Passage, RetrieveFor
from ghar.retrieval.event_store import EventStore, PatientRecord, to_micros
from ghar.retrieval.sparse import SparseIndex, build_sparse

EARLY, RECENT, NUMBERS = "own past, early", "own past, recent", "own past, numbers"
PARTS = (EARLY, RECENT, NUMBERS)
DAY = 86_400_000_000  # microseconds
YEAR = 365  # days
RECENT_DAYS = 3 * YEAR
LAST, FEWEST = 4, 3  # values that a slope is of: at most, at least
NEGLIGIBLE = 1e-9  # a slope of less, as a share of the values, is rounding
NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?=\s|$)")  # at the beginning of a value, its unit behind it


@dataclass(frozen=True, eq=False)
class PatientHistory:
    """store: every event a row. cases: sample id -> patient, and when the newest visit began."""

    store: EventStore
    cases: Mapping[str, tuple[int, datetime]]

    @cached_property
    def _names(self) -> list[str]:
        return [label.split(" - ", 1)[-1].lower() for label in self.store.labels]

    @cached_property
    def _index(self) -> SparseIndex:
        return build_sparse("tfidf", self._names)

    def retrieve(self, requests: Sequence[RetrieveFor]) -> list[Evidence]:
        """One evidence a request, in order: of each partition at most `top_n` rows, or measures, that share a word with
        the query.

        KeyError for a sample that is not there.
        """
        return [self._answer(request) for request in requests]

    def _answer(self, request: RetrieveFor) -> Evidence:
        subject, began = self.cases[request.sample_id]
        record = self.store.record(subject, began)
        before = int(np.searchsorted(record.row_clocks(), to_micros(began), side="left"))
        codes = record.row_codes()[:before]
        [(items, scores)] = self._index.search(self._index.encode([request.query]), np.unique(codes), len(codes) or 1)
        score = dict(zip(items.tolist(), scores.tolist(), strict=True))
        age = (to_micros(began) - record.row_clocks()[:before]) / DAY
        passages: list[Passage] = []
        for part in request.partitions if request.partitions is not None else range(len(PARTS)):
            if PARTS[part] == NUMBERS:
                passages += self._moving(record, codes, age, score, part)[: request.top_n]
                continue
            inside = np.flatnonzero((age > RECENT_DAYS) == (PARTS[part] == EARLY))
            rows = [int(row) for row in inside if int(codes[row]) in score]
            oldest_first = 1 if PARTS[part] == EARLY else -1
            rows.sort(key=lambda row: (-round(score[int(codes[row])], 5), oldest_first * row))
            for row in rows[: request.top_n]:
                own = float(score[int(codes[row])])
                passages.append(Passage(self._text(record, row, age[row]), "row", part, own, row))
        return Evidence(tuple(sorted(passages, key=lambda p: (-round(p.score, 5), p.partition))))

    def _moving(
        self, record: PatientRecord, codes: np.ndarray, age: np.ndarray, score: Mapping[int, float], part: int
    ) -> list[Passage]:
        """A passage for each code of `score` with numbers enough for a slope, the best first. age: days, by row."""
        passages = []
        for code in sorted(score, key=lambda code: (-round(score[code], 5), code)):
            rows = [int(row) for row in np.flatnonzero(codes == code)]
            numbers = [(row, float(match[0])) for row in rows if (match := NUMBER.match(record.value(row) or ""))]
            text = movement([-age[row] / YEAR for row, _ in numbers], [value for _, value in numbers])
            if text is not None:
                last = numbers[-1][0]
                passages.append(Passage(f"{self._names[code]} - {text}", "row", part, float(score[code]), last))
        return passages

    def _text(self, record: PatientRecord, row: int, age: float) -> str:
        """A row as facts of a graph are worded: what - when - value."""
        code, value = int(record.row_codes()[row]), record.value(row)
        when = f"{age / YEAR:.0f} years before" if age > RECENT_DAYS else f"{max(age, 0) / 30.4:.0f} months before"
        return " - ".join(part for part in (self._names[code], when, value) if part)


def movement(years: Sequence[float], values: Sequence[float]) -> str | None:
    """How a measure has moved over its last `LAST` values: their least-squares slope a year, in whole units from 1 on
    and to one digit below. years: of each value, ascending. None for fewer than `FEWEST` values, or all of one time."""
    if len(values) < FEWEST or np.ptp(years[-LAST:]) == 0:
        return None
    slope = float(np.polyfit(years[-LAST:], values[-LAST:], 1)[0])
    size = f"{abs(slope):.0f}" if abs(slope) >= 0.95 else f"{abs(slope):.1g}"
    moves = f"{'rising' if slope > 0 else 'falling'} {size} a year"
    if abs(slope) < NEGLIGIBLE * max(map(abs, values[-LAST:])):
        moves = "steady"
    return f"{len(values)} values, the last {number_text(values[-1])} - lately {moves}"
