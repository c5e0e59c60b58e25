"""Build the event store of a cohort (event_store.py), patients range by range, on disk, whole or not at all."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort
from ghar.data.ranges import SubjectRange, subject_ranges
from ghar.data.readers.diagnosis_copies import without_repeated_diagnoses
from ghar.data.readers.lab_copies import without_copies
from ghar.data.views.events import INNATE, MEASUREMENT, event_label, number_text
from ghar.errors import BadInput
from ghar.progress import progress
from ghar.retrieval.encoders import Encoder
from ghar.retrieval.event_store import FORMAT, Clock, EventStore, StoreLayout, chunk_count
from ghar.seal import sound
from ghar.storage import Strings, new_folder, read_meta, write_arrays, write_meta

PART = 1_000_000  # events in memory at once
BATCH = 1_024  # chunks encoded at once
VALUE = " (value: "
NO_RESULT = "no result"  # a name such as "Hepatitis B virus surface Ag [Presence]" alone reads as a finding


def build_event_store(
    cohort: Cohort,
    cache: Path,
    encoder: Encoder | None,
    layout: StoreLayout,
    units: Callable[[], Mapping[str, str]] | None = None,
) -> EventStore:
    """Open the cohort's store below `cache`, building it first where it is not there yet.

    encoder: None leaves out the vectors, for whoever reads rows and numbers only. units: code -> unit of those of its
    numbers that come without one, as the cohort's own tables say; asked for when a store is built. With it, which is
    for records at full length, a measurement without a value says so (`NO_RESULT`). A build is written whole or not at
    all, keyed by cohort, encoder and layout; BadInput when a kept one is damaged.
    """
    meta = {"format": FORMAT, "cohort": _fingerprint(cohort), "encoder": encoder.key if encoder else None}
    meta |= asdict(layout) | ({} if units is None else {"units": True})
    digest = hashlib.sha256(repr(sorted(meta.items())).encode()).hexdigest()[:16]
    folder = Path(cache) / f"events-{digest}"
    if not sound(folder):
        with new_folder(folder, keep=True) as temporary:
            sizes = _Builder(cohort, encoder, layout, temporary, units() if units else None).build()
            write_meta(temporary, meta | {"sizes": sizes})
    read_meta(folder)
    return EventStore.load(folder, layout, encoder)


def clock_of(clock: Clock) -> pl.Expr:
    """When an event counts (event_store.py); null for static facts, and with "recorded" where no one knows when it
    became known."""
    if clock == "time":
        return pl.col("time")
    if clock == "known":
        return pl.when(pl.col("time").is_not_null()).then(pl.max_horizontal("time", "recorded"))
    has_times = pl.col("time").is_not_null() & pl.col("recorded").is_not_null()
    return pl.when(has_times).then(pl.max_horizontal("time", "recorded"))


def _fingerprint(cohort: Cohort) -> str:
    """The key of a cohort from the cache; of any other one what it holds."""
    if cohort.key is not None:
        return cohort.key
    events, codes = cohort.scan(), cohort.codes.select("code", "description")
    digest = hashlib.sha256(repr(events.collect_schema()).encode())
    for part in subject_ranges(events):
        digest.update(part.of(events).collect(engine="streaming").hash_rows(0).to_numpy().tobytes())
    digest.update(repr(codes.schema).encode())
    digest.update(codes.hash_rows(0).to_numpy().tobytes())
    return digest.hexdigest()


@dataclass(eq=False)
class _Builder:
    """The arrays being filled. units: code -> unit, as in `build_event_store`. values: text of a value or unit -> its
    number. label_of: code -> its rows' name. codes: sorted; of each, labels: that name, indicator_of: its indicator, -1
    for one that is never a number, unit_of: its unit."""

    cohort: Cohort
    encoder: Encoder | None
    layout: StoreLayout
    folder: Path
    units: Mapping[str, str] | None
    values: dict[str, int] = field(default_factory=dict)
    codes: pl.Enum = field(init=False)
    labels: pl.Series = field(init=False)
    label_of: dict[str, str] = field(init=False)
    indicator_of: np.ndarray = field(init=False)
    unit_of: pl.Series = field(init=False)

    def build(self) -> dict[str, int]:
        """Write all arrays; returns their lengths."""
        codes = self.cohort.codes.sort("code")
        names = codes["description"].to_list()
        self.codes = pl.Enum(codes["code"])
        self.labels = pl.Series([event_label(c, n) for c, n in zip(codes["code"], names, strict=True)], dtype=pl.String)
        named = zip(codes["code"], names, self.labels, strict=True)
        self.label_of = {code: label for code, name, label in named if name is not None}
        unit_of = self.units or {}
        self.unit_of = pl.Series([unit_of.get(code) for code in codes["code"]], dtype=pl.String)
        ranges = subject_ranges(self.cohort.scan()) or [SubjectRange(0, 0, 0)]
        numbers = [self._timed(part).filter("_number").select(pl.col("code").unique()) for part in ranges]
        measured = {code for some in numbers for code in some.collect(engine="streaming")["code"]}
        indicators = sorted({name for code, name in zip(codes["code"], names, strict=True) if code in measured})
        place = {name: i for i, name in enumerate(indicators)}
        self.indicator_of = np.array([place.get(name, -1) for name in names], dtype=np.int32)
        people = self._count(ranges)
        if people.is_empty():
            raise BadInput(f"The {self.cohort.name} have no events to retrieve from: choose another data.root.")
        arrays = self._allocate(people)
        with progress(int(people["events"].sum()), "Build the event store", "events") as advance:
            for first, last in pairwise(_cuts(people["events"].to_numpy())):
                self._fill(arrays, people, first, last)
                _let_go(arrays)
                advance(int(people["events"][first:last].sum()))
        kept = self._write(arrays, people, codes["code"].to_list(), indicators)
        return {name: len(array) for name, array in kept.items()}

    def _timed(self, some: SubjectRange) -> pl.LazyFrame:
        """Events of some patients with a clock, and whether their number is one; each laboratory result and
        each diagnosis once."""
        number = pl.col("numeric_value").is_finite().fill_null(False) & self.layout.numbers_apart
        events = without_repeated_diagnoses(without_copies(some.of(self.cohort.scan())), self.label_of)
        return events.with_columns(_clock=clock_of(self.layout.clock), _number=number)

    def _count(self, ranges: Sequence[SubjectRange]) -> pl.DataFrame:
        """One row a patient: subject_id, first clock, and how many events, rows, numbers and facts there are.

        A birth, or what has been so since birth, begins no record: it would make tau_first of Eq. 2 the birthday, and
        for an adult nothing would be early.
        """
        timed = pl.col("_clock").is_not_null()
        innate = pl.col("code").str.split("/").list.first().is_in(list(INNATE))
        counts = dict(
            first=pl.col("_clock").filter(~innate).min().to_physical(),
            events=pl.len().cast(pl.Int64),
            rows=(timed & ~pl.col("_number")).sum().cast(pl.Int64),
            numbers=(timed & pl.col("_number")).sum().cast(pl.Int64),
            facts=pl.col("time").is_null().sum().cast(pl.Int64),
        )  # fmt: skip
        parts = [self._timed(part).group_by("subject_id").agg(**counts) for part in ranges]
        return pl.concat([part.collect(engine="streaming") for part in parts]).sort("subject_id")

    def _allocate(self, people: pl.DataFrame) -> dict[str, np.ndarray]:
        size, overlap = self.layout.size, self.layout.overlap
        rows, numbers, facts = (int(people[name].sum()) for name in ("rows", "numbers", "facts"))
        chunks = int(chunk_count(people["rows"].to_numpy(), size, overlap).sum())
        width = self.encoder.dimension if self.encoder is not None else 0
        i32, i64, f32 = np.int32, np.int64, np.float32
        shapes = {
            "row_clock": (i64, rows), "row_time": (i64, rows), "row_code": (i32, rows), "row_value": (i32, rows),
            "vectors": (f32, chunks, width), "number_clock": (i64, numbers), "number_time": (i64, numbers),
            "number_indicator": (i32, numbers), "number_value": (f32, numbers), "number_unit": (i32, numbers),
            "fact_code": (i32, facts),
        }  # fmt: skip
        # an empty array cannot be mapped
        return {
            name: np.lib.format.open_memmap(self.folder / f"{name}.npy", "w+", kind, tuple(shape))
            if np.prod(shape) else np.empty(shape, kind)
            for name, (kind, *shape) in shapes.items()
        }  # fmt: skip

    def _fill(self, arrays: dict[str, np.ndarray], people: pl.DataFrame, first: int, last: int) -> None:
        """Patients `first` to `last` of the table."""
        some = people[first:last]
        events = self._timed(SubjectRange(some["subject_id"][0], some["subject_id"][-1], 0)).collect()
        events = events.with_columns(_code=pl.col("code").cast(self.codes).to_physical().cast(pl.Int32))
        before = people[:first]
        timed = events.filter(pl.col("_clock").is_not_null())
        # the cohort's own order breaks ties
        timed = timed.sort("subject_id", "_clock", maintain_order=True)
        texts = self._rows(arrays, timed.filter(~pl.col("_number")), int(before["rows"].sum()))
        self._numbers(arrays, timed.filter("_number"), int(before["numbers"].sum()))
        facts = events.filter(pl.col("time").is_null())["_code"].to_numpy()
        begin = int(before["facts"].sum())
        arrays["fact_code"][begin : begin + len(facts)] = facts
        done = chunk_count(before["rows"].to_numpy(), self.layout.size, self.layout.overlap).sum()
        if self.encoder is not None:
            chunked = _chunked(texts, some["rows"].to_list(), self.layout)
            _encode(arrays["vectors"], self.encoder, chunked, int(done))

    def _rows(self, arrays: dict[str, np.ndarray], rows: pl.DataFrame, begin: int) -> list[str]:
        """Fill in the rows; returns them in words where they are to be encoded."""
        span = slice(begin, begin + rows.height)
        values = self._format_values(rows)
        arrays["row_clock"][span] = rows["_clock"].to_physical().to_numpy()
        arrays["row_time"][span] = rows["time"].to_physical().to_numpy()
        arrays["row_code"][span] = rows["_code"].to_numpy()
        arrays["row_value"][span] = self._numbered(values)
        if self.encoder is None:
            return []
        label, time = self.labels.gather(rows["_code"]), rows["time"].dt.strftime("%Y-%m-%d %H:%M:%S")
        value = pl.when(pl.col("value").is_not_null()).then(VALUE + pl.col("value") + ")").otherwise(pl.lit(""))
        frame = pl.DataFrame({"time": time, "label": label, "value": values})
        text = pl.concat_str(pl.lit("["), "time", pl.lit("] "), "label", value)
        return frame.select(text.alias("text"))["text"].to_list()

    def _numbers(self, arrays: dict[str, np.ndarray], numbers: pl.DataFrame, begin: int) -> None:
        which = self.indicator_of[numbers["_code"].to_numpy()]
        numbers = numbers.with_columns(_which=pl.Series(which, dtype=pl.Int32))
        numbers = numbers.sort("subject_id", "_which", "_clock", maintain_order=True)
        span = slice(begin, begin + numbers.height)
        arrays["number_clock"][span] = numbers["_clock"].to_physical().to_numpy()
        arrays["number_time"][span] = numbers["time"].to_physical().to_numpy()
        arrays["number_indicator"][span] = numbers["_which"].to_numpy()
        arrays["number_value"][span] = numbers["numeric_value"].to_numpy()
        arrays["number_unit"][span] = self._numbered(self._units(numbers))

    def _format_values(self, rows: pl.DataFrame) -> pl.Series:
        """The value of each row as it is shown, with its unit; null where there is none to be expected."""
        value = _filled(rows["text_value"])
        if not self.layout.numbers_apart:
            finite = rows["numeric_value"].is_finite().fill_null(False)
            numbers = rows["numeric_value"].set(~finite, None)
            distinct = numbers.drop_nulls().unique()
            texts = pl.Series([number_text(number) for number in distinct], dtype=pl.String)
            value = numbers.replace_strict(distinct, texts, default=None, return_dtype=pl.String).fill_null(value)
        frame = pl.DataFrame({"value": value, "unit": self._units(rows), "label": self.labels.gather(rows["_code"])})
        both = pl.concat_str("value", "unit", separator=" ", ignore_nulls=True)
        lacking = pl.col("label").str.starts_with(f"{MEASUREMENT} - ") & pl.lit(self.units is not None)
        text = pl.when(pl.col("value").is_not_null()).then(both).when(lacking).then(pl.lit(NO_RESULT))
        return frame.select(text.alias("value"))["value"]

    def _units(self, events: pl.DataFrame) -> pl.Series:
        """The unit of each event's value: its own, or its code's where it has a number and none."""
        own = _filled(events["unit"]) if "unit" in events.columns else pl.lit(None, pl.String)
        of_code = self.unit_of.gather(events["_code"])
        is_number = pl.col("numeric_value").is_finite().fill_null(False)
        return events.select(pl.coalesce(own, pl.when(is_number).then(of_code)).alias("unit"))["unit"]

    def _numbered(self, texts: pl.Series) -> np.ndarray:
        """The number of each text, new ones in the order of the alphabet within a part; -1 for none."""
        distinct = texts.drop_nulls().unique().sort()
        for text in distinct:
            self.values.setdefault(text, len(self.values))
        numbers = pl.Series([self.values[text] for text in distinct], dtype=pl.Int32)
        return texts.replace_strict(distinct, numbers, default=-1, return_dtype=pl.Int32).to_numpy()

    def _write(
        self, arrays: dict[str, np.ndarray], people: pl.DataFrame, codes: list[str], indicators: list[str]
    ) -> dict[str, np.ndarray]:
        """Everything that was not written while it was filled."""
        chunks = chunk_count(people["rows"].to_numpy(), self.layout.size, self.layout.overlap)
        small = {
            "subjects": people["subject_id"].to_numpy(),
            # a patient of births and static facts alone has no first time, and nothing to compare it with
            "first": people["first"].fill_null(np.iinfo(np.int64).max).to_numpy(),
            "chunk_start": _starts(chunks),
            **{f"{kind}_start": _starts(people[f"{kind}s"].to_numpy()) for kind in ("row", "number", "fact")},
            "indicator_vectors": np.empty((len(indicators), 0), np.float32)
            if self.encoder is None or not indicators
            else np.ascontiguousarray(self.encoder.passages(indicators), np.float32),
        }
        mapped = {name for name, array in arrays.items() if isinstance(array, np.memmap)}
        for name in mapped:
            arrays[name].flush()  # type: ignore[attr-defined]
        write_arrays(self.folder, small | {name: array for name, array in arrays.items() if name not in mapped})
        texts = {"codes": codes, "labels": self.labels.to_list(), "values": list(self.values), "indicators": indicators}
        write_arrays(self.folder, {name: Strings.of(values) for name, values in texts.items()})
        return {**arrays, **small}


def _let_go(arrays: dict[str, np.ndarray]) -> None:
    """What is written leaves this process's memory: the system keeps it, and puts it on disk when it likes."""
    for array in arrays.values():
        if isinstance(array.base, mmap.mmap):
            array.base.madvise(mmap.MADV_DONTNEED)


def _filled(texts: pl.Series) -> pl.Series:
    """Texts, null where blank."""
    return texts.set((texts == "").fill_null(False), None)


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)


def _cuts(sizes: np.ndarray) -> list[int]:
    """Ranges of patients with about `PART` events each."""
    part = np.cumsum(sizes) // PART
    return [0, *(np.flatnonzero(np.diff(part)) + 1).tolist(), len(sizes)] if len(sizes) else [0]


def _chunked(texts: list[str], rows: list[int], layout: StoreLayout) -> Iterator[str]:
    """The chunks of each patient in turn: `size` rows, of which `overlap` are the last ones of the chunk before."""
    begin, step = 0, layout.size - layout.overlap
    for count in rows:
        for chunk in range(int(chunk_count(count, layout.size, layout.overlap))):
            start = begin + chunk * step
            yield "\n".join(texts[start : min(start + layout.size, begin + count)])
        begin += count


def _encode(vectors: np.ndarray, encoder: Encoder, texts: Iterable[str], begin: int) -> None:
    """Encode `texts` into `vectors` from `begin` on, `BATCH` at a time."""
    remaining = iter(texts)
    while batch := list(islice(remaining, BATCH)):
        vectors[begin : begin + len(batch)] = encoder.passages(batch)
        begin += len(batch)
