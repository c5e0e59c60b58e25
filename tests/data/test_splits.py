"""Splits are by patient, complete, and depend on patients and seed only."""

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Sample
from ghar.data.splits import split_by_patient
from ghar.errors import BadInput


def samples_of(patients):
    return [Sample(f"{p}-{i}", p, i, datetime(2150, 1, 1), (), 0) for i, p in enumerate(patients)]


@given(st.lists(st.integers(1, 60), min_size=1, max_size=200), st.integers(0, 9))
def test_no_patient_is_in_two_splits(patients, seed):
    samples = samples_of(patients)
    known = len(set(patients))
    try:
        splits = split_by_patient(samples, seed=seed)
    except BadInput:
        assert known < 5
        return
    parts = (splits.train, splits.valid, splits.test)
    groups = [{s.subject_id for s in part} for part in parts]
    assert sum(map(len, groups)) == len(set.union(*groups)) == known
    assert sorted(s.sample_id for part in parts for s in part) == sorted(s.sample_id for s in samples)
    assert all(abs(len(g) - r * known) <= 1 for g, r in zip(groups, (0.6, 0.2, 0.2), strict=True))


def test_same_seed_same_split_in_any_order():
    samples = samples_of([p % 50 for p in range(200)])
    one, other = split_by_patient(samples, seed=3), split_by_patient(samples[::-1], seed=3)
    assert set(one.train) == set(other.train) and set(one.test) == set(other.test)
    assert [len({s.subject_id for s in part}) for part in (one.train, one.valid, one.test)] == [30, 10, 10]
    assert one.train != split_by_patient(samples, seed=4).train


def test_bad_splits():
    with pytest.raises(BadInput, match="empty split"):
        split_by_patient(samples_of([1, 1, 2]))
    with pytest.raises(BadInput, match="add up to 1"):
        split_by_patient(samples_of(range(9)), ratios=(0.6, 0.2, 0.1))
