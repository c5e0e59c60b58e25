"""Baselines that read earlier summaries: what they may see, that they use it, and what they say where there is none."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from ghar.data.cohort import Sample
from ghar.data.readers.notes import Notes
from ghar.envs.baselines.features import TrainingData, labels_of
from ghar.envs.baselines.fitted import NOTED
from ghar.envs.baselines.notes import EarlierNotes, fit_words
from ghar.envs.baselines.settings import Settings
from ghar.envs.baselines.tables import fit_boosting, fit_regression
from ghar.envs.records import Records
from ghar.envs.system import build
from ghar.errors import BadInput
from ghar.launch.entry import load
from tests.envs.baselines.conftest import sample


def told_world(count: int, first: int) -> tuple[list[Sample], list[str]]:
    """Samples whose codes say nothing; the summary of the first of two stays says the label, that of the second the
    opposite."""
    rng = np.random.default_rng(first)
    samples = [sample(first + i, [["a"], ["b"]], int(rng.integers(2))) for i in range(count)]
    words = ("calm", "grave")
    return samples, [f"course {words[s.label]}|course {words[1 - s.label]} {s.sample_id}" for s in samples]


def notes_of(samples: list[Sample], texts: list[str], late: timedelta = timedelta(days=2)) -> EarlierNotes:
    """A summary of every stay, there `late` after its start."""
    rows = [
        (visit.visit_id, s.subject_id, visit.start + late, text)
        for s, both in zip(samples, texts, strict=True)
        for visit, text in zip(s.history, both.split("|"), strict=True)
    ]
    rows.sort()
    when = pl.Series([row[2] for row in rows], dtype=pl.Datetime("us")).to_physical().to_numpy()
    visits, subjects = (np.array([row[k] for row in rows]) for k in (0, 1))
    return EarlierNotes(Notes(visits, subjects, when, [row[3] for row in rows], {}, True))


def known_notes(count: int = 300) -> tuple[TrainingData, list[Sample]]:
    train, first = told_world(count, 10_000)
    valid, second = told_world(count // 3, 30_000)
    test, third = told_world(count // 3, 50_000)
    told = notes_of([*train, *valid, *test], [*first, *second, *third])
    return TrainingData(train, valid, 2, 0, Settings(rounds=20, patience=4), lambda: told), test


def test_a_sample_shows_summaries_of_earlier_stays_alone_and_only_those_that_were_there():
    samples, texts = told_world(3, 0)
    one = samples[0]  # its stays begin ten days apart
    before, of_newest = texts[0].split("|")
    assert notes_of(samples, texts)(one) == before and of_newest not in notes_of(samples, texts)(one)
    assert notes_of(samples, texts, timedelta(days=10))(one) == ""  # stored when the newest visit begins: too late
    assert notes_of(samples, texts, timedelta(days=10) - timedelta(microseconds=1))(one) == before
    alone = replace(one, history=one.history[-1:])
    assert notes_of(samples, texts)(alone) == "" and notes_of(samples, texts)(replace(one, history=())) == ""
    backwards = replace(one, history=one.history[::-1])  # data of PyHealth's order: the future stands in a history
    assert notes_of(samples, texts)(backwards) == ""
    stranger = replace(one, subject_id=99)
    assert notes_of(samples, texts)(stranger) == ""


@pytest.mark.slow
def test_later_summaries_change_no_answer():
    known, test = known_notes()
    told = known.notes()
    assert told is not None
    for fit in NOTED.values():
        model = fit(known)
        before = model(test)
        newest = {one.visit_id for one in test}
        changed = [
            "calm calm grave" if visit in newest else text
            for visit, text in zip(told.notes.visit_id.tolist(), told.notes.texts, strict=True)
        ]
        other = EarlierNotes(replace(told.notes, texts=changed))
        again = replace(model, words=replace(model.words, notes=other))  # pyright: ignore[reportArgumentType, reportAttributeAccessIssue]
        np.testing.assert_array_equal(before, again(test))  # pyright: ignore[reportCallIssue]


@pytest.mark.slow
def test_they_learn_what_only_summaries_tell():
    known, test = known_notes()
    for fit, plain in ((NOTED["counts_lr_notes"], fit_regression), (NOTED["boosting_notes"], fit_boosting)):
        right, without = ((m(test).argmax(axis=1) == labels_of(test)).mean() for m in (fit(known), plain(known)))
        assert right == 1.0 and without < 0.7
        assert fit(known).about["words"] == 3  # course, calm, grave


def test_without_any_word_they_are_what_they_are_without_summaries():
    known, test = known_notes(60)
    empty = notes_of([*known.train], ["|"] * len(known.train))
    assert fit_words(empty, known.train, 10).about == {"words": 0}
    silent = replace(known, notes=lambda: empty)
    np.testing.assert_array_equal(NOTED["boosting_notes"](silent)(test), fit_boosting(known)(test))


@pytest.mark.slow
def test_patients_without_summaries_are_told_so_in_one_sentence(tmp_path: Path):
    with pytest.raises(BadInput, match=r"come with none: set system\.notes"):
        NOTED["counts_lr_notes"](TrainingData([sample(1, [["a"]], 0)], [], 2, 0))
    own = ("system=baselines", "data.patients=60", "task=los", f"data.cache={tmp_path}", "threads=1")
    made = build(Records(load(own)))
    with pytest.raises(StopIteration) as end:
        next(made.episode(made.cases.test[0], made.variants["counts_lr_notes"]))
    assert len(end.value.value.probabilities) == 10
