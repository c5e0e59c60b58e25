"""The event store against a direct reading of the events: rows, chunks, trajectories, and nothing from the future."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ghar.errors import BadInput
from ghar.retrieval.encoders import HashingEncoder
from ghar.retrieval.event_build import build_event_store
from ghar.retrieval.event_store import Clock, EventStore, StoreLayout, chunk_count
from ghar.seal import seal
from tests.data.event_rows import chunks, rows_of
from tests.data.small import DAY, HOUR, START, small_cohort
from tests.retrieval.event_cohorts import cohorts, is_number, known

ENCODER = HashingEncoder(16)
layouts = st.builds(
    lambda size, overlap, apart, clock: StoreLayout(size, min(overlap, size - 1), apart, clock),
    st.integers(1, 7), st.integers(0, 3), st.booleans(), st.sampled_from(["time", "recorded"]),
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=12)
@given(cohorts(), layouts, st.integers(-1, 14), st.sampled_from([timedelta(0), HOUR]))
def test_a_record_holds_what_was_known_before(cohort, layout: StoreLayout, day: int, more: timedelta) -> None:
    assume(cohort.events.height)
    before = START + day * DAY + more
    with TemporaryDirectory() as folder:
        store = build_event_store(cohort, Path(folder), ENCODER, layout)
        names = cohort.names()
        for subject in range(1, 10):
            record, events = store.record(subject, before), known(cohort, subject, before, layout.clock)
            number = pl.col("numeric_value").map_elements(is_number, return_dtype=pl.Boolean).fill_null(False)
            rows = events.filter(~number) if layout.numbers_apart else events
            # a number that is none is not shown as one: its text is
            rows = rows.with_columns(numeric_value=pl.when(number).then("numeric_value"))
            expected = rows_of(rows, names.__getitem__)
            assert list(record.text(range(record.rows))) == expected
            texts = ["\n".join(record.text(record.chunk_rows(i))) for i in range(record.chunks)]
            assert texts == chunks(expected, layout.size, layout.overlap)
            # a chunk that is cut off has the vector of what is left
            if texts:
                assert np.array_equal(record.vectors, ENCODER.passages(texts))
            measured = events.filter(number) if layout.numbers_apart else events.clear()
            found = {store.indicators[i]: record.trajectory(i) for i in record.indicators}
            by_name = measured.with_columns(name=pl.col("code").replace_strict(names))
            by_name = by_name.with_columns(unit=pl.col("unit").fill_null("")).sort("time", maintain_order=True)
            # what is charted twice stands once
            same = ["name", "time", "numeric_value", "unit"]
            by_name = by_name.unique(same, keep="first", maintain_order=True)
            assert found == {
                name: (part["time"].to_list(), part["numeric_value"].to_list())
                for (name,), part in by_name.group_by("name", maintain_order=True)
            }
            static = cohort.events.filter(pl.col("subject_id") == subject, pl.col("time").is_null())
            assert len(record.facts) == static.height


@given(st.integers(0, 400), st.integers(1, 120), st.data())
def test_chunks_cover_every_row_and_share_the_overlap(n: int, size: int, data: st.DataObject) -> None:
    overlap = data.draw(st.integers(0, size - 1))
    rows = [str(i) for i in range(n)]
    texts = [text.split("\n") for text in chunks(rows, size, overlap)]
    assert len(texts) == chunk_count(n, size, overlap)
    assert all(a[-overlap:] == b[:overlap] for a, b in pairwise(texts)) or not overlap
    assert [row for i, text in enumerate(texts) for row in (text if i == 0 else text[overlap:])] == rows
    assert all(len(text) == size for text in texts[:-1])


def test_an_event_at_the_prediction_time_is_shown_and_none_after_it(tmp_path: Path) -> None:
    events = [(1, 1, "DRUG/a", START), (1, 1, "DRUG/b", START + HOUR), (1, 1, "LAB/c", START + HOUR, START, 5.0, None)]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], events)
    store = build_event_store(cohort, tmp_path, ENCODER, StoreLayout(100, 5, True, "time"))
    before, at = store.record(1, START + HOUR - timedelta(microseconds=1)), store.record(1, START + HOUR)
    assert (before.rows, before.indicators) == (1, ())
    assert (at.rows, len(at.indicators)) == (2, 1)
    assert at.trajectory_lines(at.indicators, 5) == [("LAB/c: [2150-01-01 13:00:00] 5", START + HOUR, START + HOUR)]


@pytest.mark.parametrize("clock", ["known", "recorded"])
def test_a_result_that_was_stored_late_is_not_the_newest(tmp_path: Path, clock: Clock) -> None:
    """131 of 95,237 results of the MIMIC-IV demo were stored after a later one of their item: in the trajectory of
    values with times they stood last, and of five values the newest could be cut."""
    drawn = [(START, 9 * HOUR, 3.0), (START + HOUR, 2 * HOUR, 4.0), (START + 2 * HOUR, 3 * HOUR, 5.0)]
    events = [(1, 1, "LAB/c", at, START + late, value, None) for at, late, value in drawn]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], events)
    store = build_event_store(cohort, tmp_path, ENCODER, StoreLayout(100, 5, True, clock))
    early, late = store.record(1, START + 8 * HOUR), store.record(1, START + DAY)
    assert early.trajectory(0)[1] == [4.0, 5.0]  # what is not known yet is not shown
    assert late.trajectory(0) == ([START, START + HOUR, START + 2 * HOUR], [3.0, 4.0, 5.0])
    assert late.numbers(0, 1) == [5.0]


def test_a_value_that_is_charted_twice_stands_once(tmp_path: Path) -> None:
    """MIMIC-III charts glucose under three items: "[18:03] 111; [18:03] 111; [18:03] 111" was three of five values."""
    drawn = [(START, 138.0), *[(START + HOUR, 111.0)] * 3, (START + HOUR, 109.0), (START + 2 * HOUR, 109.0)]
    events = [(1, 1, "VITAL/glucose", at, at, value, None) for at, value in drawn]
    cohort = small_cohort([(1, 1, START, START + DAY, None)], events)
    record = build_event_store(cohort, tmp_path, ENCODER, StoreLayout(100, 5, True, "time")).record(1, START + DAY)
    [(line, first, _)] = record.trajectory_lines(record.indicators, 5)
    values = [f"[2150-01-01 {time}:00:00] {value}" for time, value in ((12, 138), (13, 111), (13, 109), (14, 109))]
    assert line == f"VITAL/glucose: {'; '.join(values)}" and first == START
    assert record.numbers(0, 5) == [138.0, 111.0, 109.0, 109.0]  # what is shown is what features are made of


@pytest.mark.parametrize("apart", [True, False])
def test_a_laboratory_result_that_is_a_vital_sign_too_stands_once(tmp_path: Path, apart: bool) -> None:
    """Of the MIMIC-IV demo EHR-RAG had each glucose as "Glucose" and as "glucose (mg/dL)"."""
    events = [
        (1, 1, "LAB/50931", START, START + HOUR, 138.0, None),
        (1, 1, "VITAL/glucose", START, START + HOUR, 138.0, None),
        (1, 1, "LAB/50816", START, START, 40.0, None),
        (1, 1, "VITAL/fraction inspired oxygen", START, START, 0.4, None),
        (1, 1, "VITAL/heart rate", START, START, 80.0, None),
        (1, 1, "VITAL/glucose", START + HOUR, START + HOUR, 120.0, None),  # charted alone
    ]  # fmt: skip
    cohort = small_cohort([(1, 1, START, START + DAY, None)], events)
    record = build_event_store(cohort, tmp_path, ENCODER, StoreLayout(100, 5, apart, "time")).record(1, START + DAY)
    trajectories = [line for line, *_ in record.trajectory_lines(record.indicators, 5)]
    lines = trajectories if apart else record.text(range(record.rows))
    names = ("LAB/50816", "LAB/50931", "VITAL/glucose", "VITAL/heart rate", "VITAL/fraction inspired oxygen")
    assert {name: sum(name in line for line in lines) for name in names} == dict.fromkeys(names[:4], 1) | {names[4]: 0}


def test_a_store_is_opened_again_and_a_damaged_one_refused(tmp_path: Path) -> None:
    cohort = small_cohort([(1, 1, START, START + DAY, None)], [(1, 1, f"DRUG/{i}", START + i * HOUR) for i in range(9)])
    layout = StoreLayout(4, 1, True, "time")
    build_event_store(cohort, tmp_path, ENCODER, layout)
    [folder] = tmp_path.iterdir()
    stamp = os.stat(folder / "vectors.npy").st_mtime_ns
    again = build_event_store(cohort, tmp_path, ENCODER, layout)
    assert os.stat(folder / "vectors.npy").st_mtime_ns == stamp and again.record(1, START + DAY).rows == 9
    build_event_store(cohort, tmp_path, HashingEncoder(8), layout)
    build_event_store(cohort, tmp_path, ENCODER, StoreLayout(5, 1, True, "time"))
    assert len(list(tmp_path.iterdir())) == 3
    np.save(folder / "row_code.npy", np.zeros(3, np.int32))
    seal(folder)  # a store that was built wrong, not one that was damaged
    with pytest.raises(BadInput, match=r"row_code.npy is cut short"):
        EventStore.load(folder, layout, ENCODER)


def test_a_cohort_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no events"):
        build_event_store(
            small_cohort([(1, 1, START, START, None)]), tmp_path, ENCODER, StoreLayout(4, 1, True, "time")
        )


def test_a_build_that_fails_leaves_nothing(tmp_path: Path) -> None:
    class Broken(HashingEncoder):
        def passages(self, texts):
            raise RuntimeError("no")

    cohort = small_cohort([(1, 1, START, START + DAY, None)], [(1, 1, "DRUG/a", START)])
    with pytest.raises(RuntimeError):
        build_event_store(cohort, tmp_path / "stores", Broken(), StoreLayout(4, 1, True, "time"))
    assert not list((tmp_path / "stores").iterdir())


def test_a_measurement_without_a_result_says_so_in_records_at_full_length(tmp_path: Path) -> None:
    """Of MIMIC-IV in OMOP, whose comments are lost, 9,731 results read "Hepatitis B virus surface Ag [Presence]"."""
    events = [
        (1, 1, "LOINC/5196-1", START, START, None, None), (1, 1, "DRUG/aspirin", START, START, None, None),
        (1, 1, "LAB/a", START + HOUR, START + HOUR, None, "NEG"),
    ]  # fmt: skip
    cohort = small_cohort([(1, 1, START, START + DAY, None)], events)
    for units, expected in ((dict, ["no result", None, "NEG"]), (None, [None, None, "NEG"])):
        store = build_event_store(cohort, tmp_path, None, StoreLayout(9, 0, True, "time"), units)
        record = store.record(1, START + DAY)
        assert [record.value(row) for row in range(record.rows)] == expected


def test_a_number_has_the_unit_of_its_code_where_it_has_none_of_its_own(tmp_path: Path) -> None:
    """The tables of MIMIC and eICU say the unit once for an item, so that an event has none."""
    events = [
        (1, 1, "LAB/c", START, START, 5.0, None),
        (1, 1, "LAB/c", START + HOUR, START + HOUR, None, "NEG"),
        (1, 1, "LAB/d", START, START, 2.0, None),
    ]
    cohort, units = small_cohort([(1, 1, START, START + DAY, None)], events), lambda: {"LAB/c": "mg/dL", "LAB/x": "mL"}
    apart, whole = (
        build_event_store(cohort, tmp_path, None, StoreLayout(100, 5, how, "time"), units).record(1, START + DAY)
        for how in (True, False)
    )
    lines = [line for line, *_ in apart.trajectory_lines(apart.indicators, 5)]
    assert lines == ["LAB/c: [2150-01-01 12:00:00] 5 mg/dL", "LAB/d: [2150-01-01 12:00:00] 2"]
    assert [whole.value(row) for row in range(whole.rows)] == ["5 mg/dL", "2", "NEG"]
    own = replace(cohort, table=cohort.events.with_columns(unit=pl.lit("g/L")))
    record = build_event_store(own, tmp_path, None, StoreLayout(100, 5, True, "time"), units).record(1, START + DAY)
    assert [line[-3:] for line, *_ in record.trajectory_lines(record.indicators, 5)] == ["g/L", "g/L"]
    plain = build_event_store(cohort, tmp_path, None, StoreLayout(100, 5, True, "time")).record(1, START + DAY)
    assert plain.trajectory_lines(plain.indicators[:1], 5)[0][0].endswith(" 5")  # a store of its own
