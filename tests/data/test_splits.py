"""Splits are by patient, complete, and depend on patients and seed only."""

from collections import Counter
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Sample, Visit
from ghar.data.tasks.splits import (
    Splits,
    draw,
    split_as_given,
    split_by_patient,
    split_stratified,
)
from ghar.data.tasks.subsets import few_shot, last_of_patients, rarity_groups, sample_patients
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


def labelled(pairs):
    return [Sample(f"{p}-{i}", p, i, datetime(2150, 1, 1), (), label) for i, (p, label) in enumerate(pairs)]


def patients_of(part):
    return {sample.subject_id for sample in part}


@pytest.mark.slow
@given(st.lists(st.tuples(st.integers(1, 99), st.integers(0, 2)), min_size=1, max_size=150), st.integers(0, 5))
def test_a_stratified_split_has_the_share_of_every_class(pairs, seed):
    samples = labelled(pairs)
    last = dict(pairs)
    try:
        splits = split_stratified(samples, seed=seed)
    except BadInput:
        return  # a class of four patients leaves nothing for validation and test
    parts = [patients_of(part) for part in (splits.train, splits.valid, splits.test)]
    assert sum(map(len, parts)) == len(set.union(*parts)) == len(last)
    for label in set(last.values()):
        total = sum(own == label for own in last.values())
        for part, share in zip(parts, (0.8, 0.1, 0.1), strict=True):
            assert abs(sum(last[p] == label for p in part) - share * total) <= 1


def test_a_stratified_split_of_a_rare_class():
    splits = split_stratified(labelled([(p, int(p < 20)) for p in range(200)]))
    assert [sum(s.label for s in part) for part in (splits.train, splits.valid, splits.test)] == [16, 2, 2]
    assert splits == split_stratified(labelled([(p, int(p < 20)) for p in range(200)]))


def test_a_split_that_comes_with_the_data():
    samples = samples_of([1, 2, 3, 1])
    splits = split_as_given(samples, {1: "train", 2: "tuning", 3: "held_out", 4: "train"})
    assert [len(p) for p in (splits.train, splits.valid, splits.test)] == [2, 1, 1]
    assert splits.pool == () and splits.known == splits.train
    pooled = split_as_given(samples_of([1, 2, 3, 4]), {1: "train", 2: "tuning", 3: "held_out", 4: "pool"})
    assert [s.subject_id for s in pooled.pool] == [4] and pooled.known == (*pooled.train, *pooled.pool)
    assert 4 not in {s.subject_id for s in (*pooled.train, *pooled.valid, *pooled.test)}
    with pytest.raises(BadInput, match="Patient 3 has split None"):
        split_as_given(samples, {1: "train", 2: "tuning"})
    with pytest.raises(BadInput, match="empty split"):
        split_as_given(samples, {1: "train", 2: "tuning", 3: "tuning"})


@given(st.integers(0, 60), st.integers(0, 70), st.integers(0, 70), st.integers(1, 5), st.integers(0, 9))
def test_draws_are_nested_in_order_and_of_whole_blocks(count, few, more, block, seed):
    samples = list(range(count))
    small, large = draw(samples, min(few, more), seed, block), draw(samples, max(few, more), seed, block)
    assert set(small) <= set(large) and large == sorted(large)
    assert len(set(large)) == len(large) == min(count, max(few, more))
    assert draw(samples, None, seed, block) == samples
    held = Counter(one // block for one in large)
    assert sum(held[number] < block for number in held if (number + 1) * block <= count) <= 1


def test_limits_draw_from_all_of_a_set():
    """eICU's patients are numbered by hospital: the first 320 stays were of 45 of 186 hospitals."""
    samples, pool = tuple(samples_of(range(600))), tuple(samples_of([900]))
    whole = Splits(samples[:400], samples[400:500], samples[500:], pool)
    kept = whole.limited(40, 20, None, 0)
    assert [len(part) for part in (kept.train, kept.valid, kept.test)] == [40, 20, 100] and kept.pool == pool
    assert kept.known[:40] == kept.train and {s.subject_id // 100 for s in kept.train} == {0, 1, 2, 3}
    assert kept == whole.limited(40, 20, None, 0) != whole.limited(40, 20, None, 1)
    assert set(whole.limited(20, 20, None, 0).train) < set(kept.train)
    assert whole.limited(None, None, None, 0) == whole


def test_one_split_of_a_cohort_serves_every_task():
    """Train on READ, test on DEC (GHAR, Section V-C): no patient is on both sides."""
    read, dec, everyone = samples_of(range(40)), samples_of(range(20, 80)), range(80)
    one, other = (split_by_patient(samples, everyone=everyone) for samples in (read, dec))
    assert not patients_of(one.train + one.valid) & patients_of(other.test)
    alone = (split_by_patient(read), split_by_patient(dec))
    assert patients_of(alone[0].train + alone[0].valid) & patients_of(alone[1].test)


@given(st.lists(st.integers(1, 9), max_size=30))
def test_the_last_sample_of_patients_with_two_visits(patients):
    samples = samples_of(sorted(patients))
    visits = {p: patients.count(p) for p in patients}
    found = last_of_patients(samples, visits)
    assert [s.subject_id for s in found] == sorted(p for p, n in visits.items() if n >= 2)
    assert all(s.visit_id == max(o.visit_id for o in samples if o.subject_id == s.subject_id) for s in found)


@given(st.integers(1, 8), st.integers(0, 9))
def test_few_shots_are_nested_and_balanced(shots, seed):
    samples = labelled([(p, p % 3) for p in range(60)])
    small, large = few_shot(samples, shots, seed), few_shot(samples, 2 * shots, seed)
    assert [sum(s.label == k for s in small) for k in range(3)] == [shots] * 3
    assert set(small) <= set(large) and small == few_shot(samples, shots, seed)


def test_too_few_for_a_subset():
    samples = labelled([(1, 0), (2, 0), (3, 1)])
    with pytest.raises(BadInput, match="Class 1 has 1 samples, not 2"):
        few_shot(samples, 2)
    with pytest.raises(BadInput, match="choose 1 or more"):
        few_shot(samples, 0)
    assert len(patients_of(sample_patients(samples, 2))) == 2
    with pytest.raises(BadInput, match="4 of 3 patients"):
        sample_patients(samples, 4)


def with_diseases(rows):
    return [
        Sample(str(i), p, i, datetime(2150, 1, 1), (Visit(i, datetime(2150, 1, 1), tuple(codes)),), 0)
        for i, (p, codes) in enumerate(rows)
    ]


diseases = st.lists(st.tuples(st.integers(1, 9), st.sets(st.sampled_from("abcde"))), max_size=20)


@given(diseases, diseases)
def test_rarity_groups(train_rows, rows):
    train, samples = with_diseases(train_rows), with_diseases(rows)
    groups = rarity_groups(train, samples)
    patients = {code: {p for p, codes in train_rows if code in codes} for code in "abcde"}
    common = {str(i): sum(len(patients[c]) for c in codes) / len(codes) for i, (_, codes) in enumerate(rows) if codes}
    for number, name in enumerate(("G1", "G2", "G3")):
        for sample in groups[name]:
            own = common.pop(sample.sample_id)
            others = [sum(len(patients[c]) for c in codes) / len(codes) for _, codes in rows if codes]
            below, equal = sum(o < own for o in others), sum(o == own for o in others)
            middle = (below + equal / 2) / len(others)  # where the equally common ones stand, from 0 to 1
            assert number / 3 - 1e-9 <= middle <= (number + 1) / 3 + 1e-9
    assert not common  # nobody with a diagnosis is left out
