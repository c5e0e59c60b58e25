"""ETHER, event- and time-aware retrieval (Section 3.2 of EHR-RAG), and the looks that its baselines take.

The corpus holds one record for each case: a patient before a prediction time. An `EventQuery` names the case and a
view, which is one way into its record:

    indicators   trajectories of the indicators whose names are most like the query (coarse selection)
    chunks       the best chunks by alpha * semantic + (1 - alpha) * time (Eqs. 2, 3), out of the most similar ones
    similar      the chunks most similar to the query, numbers in the rows: what the RAG baselines do
    newest       the newest rows, as one passage (direct generation)
    frequent     the rows whose codes are most frequent in the record, one passage a frequency (rule-based RAG)
    uniform      random chunks (uniform RAG), drawn by patient and time

`top_n` counts passages; for newest and frequent it counts rows. Passages come best first. A chunk's time is that of its
last row: what it knows of most recently, and the only choice that keeps the newest chunk of a sparse record recent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal

import numpy as np

from ghar.episode import Evidence, Passage, Retrieve
from ghar.ranking import best
from ghar.retrieval.encoders import Encoder
from ghar.retrieval.event_store import EventStore, PatientRecord, to_datetime

View = Literal["indicators", "chunks", "similar", "newest", "frequent", "uniform"]
DAY = 86_400_000_000.0  # microseconds
KEPT = 1_024  # records that stay open: an episode comes back to its own


@dataclass(frozen=True)
class EtherSpec:
    """The paper's numbers: alpha 0.75, 180 and 3,650 days, 100 candidates, 5 recent values of an indicator."""

    alpha: float
    recent_days: float
    early_days: float
    candidates: int
    values: int


@dataclass(frozen=True, kw_only=True)
class EventQuery(Retrieve):
    """Ask for the `top_n` best of one view of the record of case number `place`."""

    place: int
    view: View


@dataclass(frozen=True)
class RowPassage(Passage):
    """A chunk or the trajectory of an indicator: kind is the view it was found by, partition the place of its case,
    ident the chunk or the indicator.

    numbers: of its rows in the record, ascending; none for a trajectory. rows: in words, or the one line of a
    trajectory. codes: of its rows, or the indicator's name.
    """

    numbers: tuple[int, ...]
    rows: tuple[str, ...]
    codes: tuple[str, ...]


@dataclass(frozen=True)
class EventPassage(RowPassage):
    """The same of events. first, last: times of its first and last event."""

    first: datetime
    last: datetime


def time_score(time: np.ndarray, first: int, now: int, recent_days: float, early_days: float) -> np.ndarray:
    """s_time of Eq. 2: f64, in (0, 1], of times in microseconds up to `now`.

    A birth lies before `first` (`EventStore.first`) and counts as so far from the record's beginning as it is.
    """
    recent = np.exp(-(now - np.asarray(time, np.float64)) / DAY / recent_days)
    early = np.exp(-np.abs(np.asarray(time, np.float64) - first) / DAY / early_days)
    return np.maximum(recent, early)


def rank_chunks(semantic: np.ndarray, time: np.ndarray, alpha: float, candidates: int, top_n: int) -> list[int]:
    """Eq. 3: the `top_n` best by alpha * semantic + (1 - alpha) * time of the `candidates` most similar, best first.

    Of equal scores (to five decimals) the earlier chunk comes first.
    """
    pool, _ = best(np.arange(len(semantic)), semantic, candidates)
    chunks, _ = best(pool, alpha * semantic[pool] + (1 - alpha) * time[pool], top_n)
    return chunks.tolist()


@dataclass(eq=False)
class EventCorpus:
    """Answers `Retrieve`s over the cases (record, prediction_time), whose places are their numbers.

    apart: the store with trajectories, for indicators and chunks; whole: the store in which every event is a row, for
    the other views. Either may be None where no view asks for it. seed: of the uniform view.
    """

    cases: Sequence[tuple[int, datetime]] | Mapping[int, tuple[int, datetime]]
    spec: EtherSpec
    encoder: Encoder
    apart: EventStore | None
    whole: EventStore | None
    seed: int
    _records: dict[tuple[int, bool], PatientRecord] = field(default_factory=dict)

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        """One `Evidence` a request, in order."""
        texts = sorted({request.query for request in requests})
        vectors = dict(zip(texts, self.encoder.queries(texts), strict=True)) if texts else {}
        return [self._answer(request, vectors[request.query]) for request in requests]

    def record(self, place: int, view: View) -> PatientRecord:
        """The record of a case, in the store that the view reads."""
        apart = view in ("indicators", "chunks")
        record = self._records.get((place, apart))
        if record is not None:
            return record
        store = self.apart if apart else self.whole
        if store is None:
            raise ValueError(f"view {view} needs a store that this corpus was not given")
        record = self._records[place, apart] = store.record(*self.cases[place])
        while len(self._records) > KEPT:
            self._records.pop(next(iter(self._records)), None)
        return record

    def _answer(self, request: Retrieve, query: np.ndarray) -> Evidence:
        if not isinstance(request, EventQuery):
            raise TypeError(f"an event corpus answers EventQuery, not {request!r}")
        place, view = request.place, request.view
        record = self.record(place, view)
        if view == "indicators":
            return Evidence(tuple(self._indicators(record, query, place, request.top_n)))
        if not record.rows:
            return Evidence()
        if view == "newest":
            return Evidence((_passage(record, np.arange(record.rows)[-request.top_n :], 0, view, place, 1.0),))
        if view == "frequent":
            groups = enumerate(_frequent(record, request.top_n))
            hits = [(rows, i, count / record.rows) for i, (count, rows) in groups]
            return Evidence(tuple(_passage(record, rows, i, view, place, share) for rows, i, share in hits))
        best_chunks = zip(*self._chunks(record, query, view, request.top_n), strict=True)
        return Evidence(
            tuple(_passage(record, np.array(record.chunk_rows(c)), c, view, place, score) for c, score in best_chunks)
        )

    def _chunks(
        self, record: PatientRecord, query: np.ndarray, view: View, top_n: int
    ) -> tuple[list[int], list[float]]:
        if view == "uniform":
            drawn_by = self.seed, int(record.store.subjects[record.place]), record.now
            rng = np.random.default_rng(np.random.SeedSequence([number % 2**64 for number in drawn_by]))
            chunks = rng.permutation(record.chunks)[:top_n].tolist()
            return chunks, [0.0] * len(chunks)
        spec = self.spec
        semantic = _cosines(record.vectors, query)
        alpha = spec.alpha if view == "chunks" else 1.0
        time = time_score(record.chunk_ends(), record.first, record.now, spec.recent_days, spec.early_days)
        chunks = rank_chunks(semantic, time, alpha, spec.candidates, top_n)
        return chunks, [float(alpha * semantic[c] + (1 - alpha) * time[c]) for c in chunks]

    def _indicators(self, record: PatientRecord, query: np.ndarray, place: int, top_n: int) -> list[EventPassage]:
        measured, store = np.array(record.indicators, dtype=np.int64), record.store
        if not len(measured):
            return []
        indicators, scores = best(measured, _cosines(store.indicator_vectors[measured], query), top_n)
        passages = []
        lines = record.trajectory_lines(indicators.tolist(), self.spec.values)
        for indicator, score, (text, *at) in zip(indicators.tolist(), scores.tolist(), lines, strict=True):
            codes = (store.indicators[indicator],)
            passages.append(EventPassage(text, "indicators", place, score, indicator, (), (text,), codes, *at))
        return passages


def _cosines(vectors: np.ndarray, query: np.ndarray) -> np.ndarray:
    """f64, row by row, so that a cosine does not depend on what else is compared."""
    return (vectors.astype(np.float64) * query).sum(axis=1)


def _frequent(record: PatientRecord, most: int) -> list[tuple[int, np.ndarray]]:
    """(frequency, rows in the order of time) of the most frequent codes, most frequent first; at most `most` rows, of
    the last frequency the newest ones."""
    codes = record.row_codes()
    count = np.bincount(codes)[codes]
    groups: list[tuple[int, np.ndarray]] = []
    for frequency in np.unique(count)[::-1].tolist():
        rows = np.flatnonzero(count == frequency)[-most:]
        groups.append((frequency, rows))
        most -= len(rows)
        if most <= 0:
            break
    return groups


def _passage(record: PatientRecord, rows: np.ndarray, ident: int, view: View, place: int, score: float) -> EventPassage:
    text, clocks, store = record.text(rows), record.row_clocks(), record.store
    codes = tuple(store.codes[code] for code in record.row_codes()[rows].tolist())
    at = to_datetime(int(clocks[rows[0]])), to_datetime(int(clocks[rows[-1]]))
    return EventPassage("\n".join(text), view, place, score, ident, tuple(rows.tolist()), text, codes, *at)
