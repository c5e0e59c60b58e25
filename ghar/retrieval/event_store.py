"""What EHR-RAG retrieves from: the events of every patient of a cohort, memory-mapped (Section 3.2 of EHR-RAG).

Events with a finite number are grouped by indicator (their name) into trajectories; all others are rows
"[time] type - description (value: ...)" in chunks of `size` rows that share `overlap` rows with the next, each chunk
with a vector. The baselines read a second store (`StoreLayout.numbers_apart` false) in which every event is a row.

A record is what is known of one patient up to and including a prediction time (Eq. 1 of EHR-RAG, and MEDS's rule for
labels, which the tasks follow, too). A chunk that the time cuts through is shown up to the cut, and what is left of it
gets a vector of its own, so that nothing later has a say in what is found. With clock "recorded" or "known" an event
counts from the time it became known (later of time and recorded), and rows stand in that order; one of which no one
knows when it became known counts from its time with "known" and never with "recorded". The values of a trajectory
stand in the order of their own times, whichever became known first.

Rows of static facts, which have no time, are kept apart (`PatientRecord.facts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import numpy as np

from ghar.data.views.events import number_text
from ghar.errors import BadInput
from ghar.retrieval.encoders import Encoder
from ghar.storage import Strings, read_array, read_meta, read_strings

FORMAT = 5
ARRAYS = (
    "subjects", "first", "row_start", "row_clock", "row_time", "row_code", "row_value", "chunk_start", "vectors",
    "number_start", "number_clock", "number_time", "number_indicator", "number_value", "number_unit", "fact_start",
    "fact_code", "indicator_vectors",
)  # fmt: skip
VOCABULARY = ("codes", "labels", "indicators")


Clock = Literal["time", "recorded", "known"]


@dataclass(frozen=True)
class StoreLayout:
    """How a store is laid out. size, overlap: rows of a chunk. numbers_apart: numeric events are trajectories, no rows.
    clock: what an event's time is compared by."""

    size: int
    overlap: int
    numbers_apart: bool
    clock: Clock


def to_micros(time: datetime) -> int:
    """Microseconds since 1970, as the store counts time."""
    return int(np.datetime64(time, "us").astype(np.int64))


def to_datetime(micros: int) -> datetime:
    return np.datetime64(micros, "us").astype(datetime)


def _stamps(micros: np.ndarray) -> list[str]:
    """Times as rows show them, "[2150-01-01 08:00:00]"."""
    texts = np.datetime_as_string(micros.astype("datetime64[us]"), unit="s").tolist()
    return [f"[{text[:10]} {text[11:]}]" for text in texts]


def _listed(strings: Strings) -> list[str]:
    """All strings at once, which is much quicker than one by one."""
    data, ends = strings.data.tobytes(), strings.offsets.tolist()
    return [data[start:end].decode() for start, end in pairwise(ends)]


def chunk_count(rows: np.ndarray | int, size: int, overlap: int) -> np.ndarray:
    """How many chunks of `size` rows `rows` make, of which each shares `overlap` with the one before (Appendix A)."""
    n = np.asarray(rows)
    return np.where(n > 0, -(-np.maximum(n - overlap, 1) // (size - overlap)), 0)


@dataclass(frozen=True, eq=False)
class EventStore:
    """Arrays over P patients, R rows, N numbers, C chunks, S static facts, K codes and I indicators.

    subjects: i64[P], ascending. first: i64[P], the earliest clock of a patient but for births and what is so from birth
    on. X_start: i64[P + 1], where the rows (numbers, chunks, facts) of a patient begin. row_clock, row_time: i64[R]
    in microseconds since 1970; row_code: i32[R] into codes and labels; row_value: i32[R] into values, -1 without one.
    vectors: f32[C, d], no columns where the store was built without an encoder. number_*: by patient, indicator and
    clock; number_value: f32[N]; number_unit: i32[N] into values, -1 without one. indicator_vectors: f32[I, d], of the
    indicators' names.
    labels: "type - description" of each code. Pickled, it is its folder, which the other process opens, too.
    """

    folder: Path
    layout: StoreLayout
    encoder: Encoder | None
    subjects: np.ndarray
    first: np.ndarray
    row_start: np.ndarray
    row_clock: np.ndarray
    row_time: np.ndarray
    row_code: np.ndarray
    row_value: np.ndarray
    chunk_start: np.ndarray
    vectors: np.ndarray
    number_start: np.ndarray
    number_clock: np.ndarray
    number_time: np.ndarray
    number_indicator: np.ndarray
    number_value: np.ndarray
    number_unit: np.ndarray
    fact_start: np.ndarray
    fact_code: np.ndarray
    indicator_vectors: np.ndarray
    codes: list[str]
    labels: list[str]
    values: Strings
    indicators: list[str]

    @classmethod
    def load(cls, folder: Path, layout: StoreLayout, encoder: Encoder | None) -> EventStore:
        """Open a folder that `build_event_store` wrote. BadInput when it is damaged."""
        arrays: dict[str, Any] = {name: read_array(folder, name) for name in ARRAYS}
        strings: dict[str, Any] = {name: _listed(read_strings(folder, name)) for name in VOCABULARY}
        strings["values"] = read_strings(folder, "values")  # may be millions: they stay on disk
        sizes = read_meta(folder).get("sizes", {})
        wrong = [name for name in ARRAYS if len(arrays[name]) != sizes.get(name)]
        if wrong:
            raise BadInput(f"{folder}/{wrong[0]}.npy is cut short: delete {folder} and it is built again.")
        return cls(folder, layout, encoder, **arrays, **strings)

    def __reduce__(self) -> tuple[Any, ...]:
        return EventStore.load, (self.folder, self.layout, self.encoder)

    def record(self, subject_id: int, now: datetime) -> PatientRecord:
        """What is known of a patient up to and including `now`; nothing for a patient who has no event."""
        place = int(np.searchsorted(self.subjects, subject_id))
        has_record = place < len(self.subjects) and self.subjects[place] == subject_id
        return PatientRecord(self, place if has_record else -1, to_micros(now))


@dataclass(frozen=True, eq=False)
class PatientRecord:
    """One patient's events up to and including `now` (microseconds). Rows and chunks are counted from 0."""

    store: EventStore
    place: int
    now: int

    def _span(self, start: np.ndarray) -> tuple[int, int]:
        return (0, 0) if self.place < 0 else (int(start[self.place]), int(start[self.place + 1]))

    @cached_property
    def rows(self) -> int:
        """How many rows may be shown."""
        first, last = self._span(self.store.row_start)
        return int(np.searchsorted(self.store.row_clock[first:last], self.now, side="right"))

    @property
    def first(self) -> int:
        """When the record begins (tau_first of Eq. 2), births apart; `now` where it has not yet."""
        return self.now if self.place < 0 else min(int(self.store.first[self.place]), self.now)

    @cached_property
    def facts(self) -> tuple[str, ...]:
        """Labels of the static facts."""
        first, last = self._span(self.store.fact_start)
        return tuple(self.store.labels[int(code)] for code in self.store.fact_code[first:last])

    def row_codes(self) -> np.ndarray:
        """i32[rows], the code of each row."""
        begin = self._span(self.store.row_start)[0]
        return self.store.row_code[begin : begin + self.rows]

    def row_clocks(self) -> np.ndarray:
        """i64[rows]: ascending, none after `now`."""
        begin = self._span(self.store.row_start)[0]
        return self.store.row_clock[begin : begin + self.rows]

    def value(self, row: int) -> str | None:
        """What a row says beside its code, None where nothing."""
        value = int(self.store.row_value[self._span(self.store.row_start)[0] + row])
        return self.store.values[value] if value >= 0 else None

    def text(self, numbers: Sequence[int] | np.ndarray) -> tuple[str, ...]:
        """These rows in words."""
        store, begin = self.store, self._span(self.store.row_start)[0]
        if len(numbers) and not 0 <= min(numbers) <= max(numbers) < self.rows:
            raise IndexError(f"rows {min(numbers)} to {max(numbers)} of a record of {self.rows}")
        places = begin + np.asarray(numbers, dtype=np.int64)
        lines = []
        for time, code, value in zip(
            _stamps(store.row_time[places]),
            store.row_code[places].tolist(),
            store.row_value[places].tolist(),
            strict=True,
        ):
            lines.append(f"{time} {store.labels[code]}" + (f" (value: {store.values[value]})" if value >= 0 else ""))
        return tuple(lines)

    def chunk_rows(self, chunk: int) -> range:
        """The rows of a chunk that may be shown."""
        size, overlap = self.store.layout.size, self.store.layout.overlap
        begin = chunk * (size - overlap)
        return range(begin, min(begin + size, self.rows))

    @cached_property
    def chunks(self) -> int:
        """How many chunks there are."""
        return int(chunk_count(self.rows, self.store.layout.size, self.store.layout.overlap))

    @cached_property
    def vectors(self) -> np.ndarray:
        """f32[chunks, d]: the stored ones, but of a chunk that is cut off by `now` one of what is left."""
        store = self.store
        if store.encoder is None:
            raise ValueError("this store was built without an encoder, so that its chunks have no vectors")
        first, last = self._span(store.row_start)
        begin = self._span(store.chunk_start)[0]
        chunk_vectors = np.array(store.vectors[begin : begin + self.chunks])
        # only the last chunk can reach beyond the cut: the one before it ends `overlap` rows after its start
        end = (self.chunks - 1) * (store.layout.size - store.layout.overlap) + store.layout.size
        if self.chunks and min(end, last - first) > self.rows:
            chunk_vectors[-1] = store.encoder.passages(["\n".join(self.text(self.chunk_rows(self.chunks - 1)))])[0]
        return chunk_vectors

    def chunk_ends(self) -> np.ndarray:
        """i64[chunks], the clock of each chunk's last row."""
        last = [self.chunk_rows(chunk)[-1] for chunk in range(self.chunks)]
        return self.row_clocks()[np.array(last, dtype=np.int64)]

    @cached_property
    def _numbers(self) -> np.ndarray:
        """Places of the numbers that may be shown, by indicator and time.

        A result that was stored late stands where it was measured: by the clock alone it would be the newest. Of those
        that are equal in time, value and unit the first stands for all: a chart may hold one value under several items
        (MIMIC-III: glucose under three).
        """
        store, (first, last) = self.store, self._span(self.store.number_start)
        places = first + np.flatnonzero(store.number_clock[first:last] <= self.now)
        columns = (store.number_unit, store.number_value, store.number_time, store.number_indicator)
        alike = np.lexsort([column[places] for column in columns])  # stable: equal ones in the order of the store
        ordered = places[alike]
        is_new = np.any([column[ordered[1:]] != column[ordered[:-1]] for column in columns], axis=0)
        places = np.sort(ordered[np.concatenate([[True], is_new])[: len(ordered)]])
        return places[np.lexsort((store.number_time[places], store.number_indicator[places]))]

    @cached_property
    def _spans(self) -> dict[int, tuple[int, int]]:
        """Indicator -> where in `_numbers` its numbers begin and end."""
        which = self.store.number_indicator[self._numbers]
        begins = np.flatnonzero(np.diff(which, prepend=-1))
        spans = pairwise([*begins.tolist(), len(which)])
        return dict(zip(which[begins].tolist(), spans, strict=True))

    @property
    def indicators(self) -> tuple[int, ...]:
        """The indicators that were measured, ascending."""
        return tuple(self._spans)

    def _trajectory(self, indicator: int, last: int | None) -> np.ndarray:
        """Places of the `last` most recent numbers of an indicator, oldest first."""
        begin, end = self._spans[indicator]
        return self._numbers[begin if last is None else max(begin, end - last) : end]

    def trajectory(self, indicator: int, last: int | None = None) -> tuple[list[datetime], list[float]]:
        """Times and values of an indicator, oldest first; the `last` most recent ones, or all."""
        places = self._trajectory(indicator, last)
        times = [to_datetime(int(time)) for time in self.store.number_time[places]]
        return times, self.store.number_value[places].tolist()

    def numbers(self, indicator: int, last: int) -> list[float]:
        """The `last` most recent values of an indicator, oldest first."""
        return self.store.number_value[self._trajectory(indicator, last)].tolist()

    def trajectory_lines(self, indicators: Sequence[int], last: int) -> list[tuple[str, datetime, datetime]]:
        """Of each indicator the `last` most recent values in words, "name: [time] value unit; ..." (E_k, Section 3.2),
        and the times of the first and the last of them."""
        store, parts = self.store, [self._trajectory(indicator, last) for indicator in indicators]
        places = np.concatenate(parts) if parts else np.empty(0, np.int64)
        times, units = store.number_time[places], store.number_unit[places].tolist()
        values = [
            f"{stamp} {number_text(value)}" + (f" {store.values[unit]}" if unit >= 0 else "")
            for stamp, value, unit in zip(_stamps(times), store.number_value[places].tolist(), units, strict=True)
        ]
        lines, begin = [], 0
        for indicator, part in zip(indicators, parts, strict=True):
            end = begin + len(part)
            text = f"{store.indicators[indicator]}: {'; '.join(values[begin:end])}"
            lines.append((text, to_datetime(int(times[begin:end].min())), to_datetime(int(times[begin:end].max()))))
            begin = end
        return lines
