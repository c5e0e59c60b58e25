"""The codes of each visit, against a direct walk through the events."""

import gc
import weakref
from datetime import datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.visit_codes import KIND_NAMES, KINDS, picked, without_collector
from tests.data.small import DAY, HOUR, START, small_cohort

pytestmark = pytest.mark.slow

CODES = ("ICD9CM/1", "ICD10CM/1", "ICD10PCS/1", "DRUG/a", "DRUG/b", "LAB/1", "AGE")
VISITS = [(1, 11, START, START + DAY, None), (1, 12, START + 2 * DAY, START + 3 * DAY, None), (2, 5, START, None, None)]
EPOCH = datetime(1970, 1, 1)
MICROSECOND = timedelta(microseconds=1)
rows = st.lists(
    st.tuples(st.sampled_from(VISITS), st.booleans(), st.sampled_from(CODES), st.integers(0, 5), st.integers(0, 5))
)


@settings(max_examples=15)
@given(rows)
def test_every_code_of_a_visit_once_in_order_with_its_earliest_time(rows):
    walk(rows)


@given(rows)
def test_every_code_of_many_visits_once_in_order_with_its_earliest_time(rows):
    walk(rows)


def walk(rows):
    """Hold the codes of each visit against a walk through `rows`."""
    events = [
        (v[0], v[1] if own else None, code, START + at * HOUR, START + known * HOUR) for v, own, code, at, known in rows
    ]
    cohort = small_cohort(VISITS, events)
    expected = {(v[1], kind): {} for v in VISITS for kind in KIND_NAMES}
    for visit_id, code, recorded in cohort.events.select("visit_id", "code", "recorded").rows():
        kind = KINDS.get(code.partition("/")[0])
        if visit_id is not None and kind is not None:
            seen = expected[visit_id, kind]
            seen[code] = min(seen.get(code, recorded), recorded)
    shown = cohort.shown
    assert list(shown.visits) == [v[1] for v in sorted(VISITS, key=lambda v: (v[0], v[2]))]
    for (visit_id, kind), seen in expected.items():
        visit = shown.visits[visit_id]
        assert getattr(visit, kind) == tuple(seen)
        for hours in range(6):
            until = START + hours * HOUR
            at = (until - EPOCH) // MICROSECOND
            assert getattr(shown.until(visit, at), kind) == tuple(code for code, time in seen.items() if time <= until)


@given(st.lists(st.integers(0, 4)))
def test_picked_is_a_loop(keys):
    for source in ("abcde", dict(enumerate("abcde"))):
        assert picked(source, keys) == tuple(source[key] for key in keys)


def test_the_collector_goes_on_and_takes_what_was_made_without_it():
    class Link:
        other: object = None

    frozen = gc.get_freeze_count()  # a library that another test loaded may have frozen what it made
    with without_collector():
        assert not gc.isenabled()
        link = Link()
        link.other = link
        gone = weakref.ref(link)
        del link
    assert gc.isenabled() and gc.get_freeze_count() == frozen
    gc.collect()
    assert gone() is None
