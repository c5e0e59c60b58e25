"""Similar patients: of the training split alone, without the query's label, in an order that tells nothing of it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.cohort import Sample
from ghar.data.tasks.splits import split_by_patient
from ghar.envs.kare.retrieval.similar import SimilarPatients


def sample(number: int, label: int, subject: int) -> Sample:
    return Sample(f"s{number}", subject, number, datetime(2150, 1, 1), (), label)


def unit(rng: np.random.Generator, count: int) -> np.ndarray:
    rows = rng.integers(-2, 3, (count, 3)).astype(np.float32)
    rows[~rows.any(axis=1), 0] = 1
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(2, 4), st.integers(1, 3))
def test_like_sorting_all_patients(seed: int, classes: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    pool = [sample(i, int(rng.integers(classes)), int(rng.integers(8))) for i in range(int(rng.integers(0, 20)))]
    vectors, asking = unit(rng, len(pool)), unit(rng, 1)[0]
    subject = int(rng.integers(8))
    order = sorted(range(len(pool)), key=lambda i: (-round(float(vectors[i] @ asking), 5), i))
    wanted: dict[int, Sample] = {}
    for i in order:
        shown = {subject, *(other.subject_id for other in wanted.values())}
        if pool[i].subject_id not in shown and len(wanted) < count:
            wanted.setdefault(pool[i].label, pool[i])
    found = SimilarPatients(pool, vectors).find(sample(-1, 0, subject), asking, count)
    assert list(found) == [wanted[label] for label in sorted(wanted)]


@pytest.mark.slow
@settings(max_examples=200)
@given(st.integers(0, 2**32 - 1), st.integers(2, 3), st.integers(1, 3))
def test_several_patients_of_each_label_like_sorting(seed: int, classes: int, each: int) -> None:
    rng = np.random.default_rng(seed)
    pool = [sample(i, int(rng.integers(classes)), int(rng.integers(8))) for i in range(int(rng.integers(0, 30)))]
    vectors, asking, subject = unit(rng, len(pool)), unit(rng, 1)[0], int(rng.integers(8))
    order = sorted(range(len(pool)), key=lambda i: (-round(float(vectors[i] @ asking), 5), i))
    shown, wanted = {subject}, dict[int, list[Sample]]()
    for _ in range(2):
        left = [i for i in order if pool[i].subject_id not in shown and pool[i].label not in wanted]
        for i in left:
            own = wanted.setdefault(pool[left[0]].label, [])
            if pool[i].label == pool[left[0]].label and len(own) < each and pool[i].subject_id not in shown:
                own.append(pool[i])
                shown.add(pool[i].subject_id)
    assert list(SimilarPatients(pool, vectors).find(sample(-1, 0, subject), asking, 2, each)) == [
        other for label in sorted(wanted) for other in wanted[label]
    ]


def test_with_two_labels_it_is_the_nearest_patient_of_each() -> None:
    pool = [sample(0, 1, 0), sample(1, 0, 1), sample(2, 1, 2), sample(3, 0, 3), sample(4, 0, 9)]
    vectors = np.array([[1, 0], [0, 1], [0.8, 0.6], [0.6, 0.8], [1, 0]], np.float32)
    found = SimilarPatients(pool, vectors).find(sample(-1, 0, 9), np.array([1, 0], np.float32))
    assert [(s.sample_id, s.label) for s in found] == [("s3", 0), ("s0", 1)]  # in the order of labels, not of likeness


def test_no_patient_is_shown_with_two_outcomes() -> None:
    pool = [sample(0, 0, 5), sample(1, 1, 5), sample(2, 1, 6)]
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 1]], np.float32)
    asking = np.array([1, 0], np.float32)
    found = SimilarPatients(pool, vectors).find(sample(-1, 0, 9), asking)
    assert [s.sample_id for s in found] == ["s0", "s2"]  # s1 is nearer, and of s0's patient
    alone = SimilarPatients(pool[:2], vectors[:2]).find(sample(-1, 0, 9), asking)
    assert [s.sample_id for s in alone] == ["s0"]


def test_the_split_decides_who_is_shown_and_labels_of_queries_decide_nothing() -> None:
    rng = np.random.default_rng(3)
    samples = [sample(i, int(rng.integers(2)), int(rng.integers(40))) for i in range(120)]
    vectors = dict(zip((s.sample_id for s in samples), unit(rng, 120), strict=True))
    splits = split_by_patient(samples, seed=1)
    flipped = {s.sample_id: replace(s, label=1 - s.label) for s in (*splits.valid, *splits.test)}

    def shown(query: Sample) -> tuple[Sample, ...]:
        similar = SimilarPatients(splits.train, np.stack([vectors[s.sample_id] for s in splits.train]))
        return similar.find(query, vectors[query.sample_id])

    train = {s.sample_id for s in splits.train}
    for query in (*splits.train, *splits.valid, *splits.test):
        found = shown(query)
        assert {s.sample_id for s in found} <= train
        assert all(s.subject_id != query.subject_id for s in found)
        assert [s.label for s in found] == [0, 1]  # for every query, of training or of test, whatever its label
        if query.sample_id in flipped:
            assert shown(flipped[query.sample_id]) == found


def test_a_training_patient_sees_the_same_others_whatever_his_own_label() -> None:
    pool = [sample(0, 0, 0), sample(1, 0, 1), sample(2, 1, 2), sample(3, 1, 3)]
    vectors = np.array([[1, 0], [0.8, 0.6], [0.6, 0.8], [0, 1]], np.float32)
    for own in range(4):
        changed = [replace(s, label=1 - s.label) if s.subject_id == own else s for s in pool]
        one, other = (SimilarPatients(p, vectors).find(sample(-1, 0, own), vectors[own]) for p in (pool, changed))
        assert one == other


def test_vectors_must_be_those_of_the_samples() -> None:
    with pytest.raises(ValueError, match="1 vectors are given for 2"):
        SimilarPatients([sample(0, 0, 0), sample(1, 0, 1)], np.zeros((1, 2), np.float32))
