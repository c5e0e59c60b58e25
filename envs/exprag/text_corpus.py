"""Training texts of a file as experience: examination questions (exam.py), or clinical texts with summaries
(summary.py). They have no codes, so they are ranked by text alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ghar.data.readers.notes import Notes
from ghar.data.tasks.samples import TextSample, kin_of
from ghar.envs.exprag.corpus import encoder_of, finder_of, ranker_encoder
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.report_texts import rank_by_text, text_scores
from ghar.envs.exprag.settings import Settings
from ghar.envs.records import Records
from ghar.errors import BadInput
from ghar.retrieval.reports import KINDS, ReportQuery, build_reports, entries_of

Words = Callable[[TextSample[Any]], str]


@dataclass(frozen=True)
class TextRoles:
    """What of a training text serves what: `ranked` is compared with who asks, `searched` has the pieces that are
    found, and `shown` stands for it."""

    ranked: Words
    searched: Words
    shown: Words


def corpus_of_texts(records: Records, settings: Settings, roles: TextRoles) -> ReportCorpus:
    """The training texts as reports, numbered from 0 in the order of their patients, or of their lines where a file
    names none. No one is offered a text of the own patient, or the own text, or a copy of one of these."""
    splits, encoder = records.texts.splits, encoder_of(records.config)
    train = sorted(splits.train, key=lambda one: one.subject_id)
    every = (*train, *splits.valid, *splits.test)
    kin = kin_of([(one.subject_id, one.text.content) for one in every])
    ids, subjects = np.arange(len(train)), np.array(kin[: len(train)], np.int64)
    never = np.zeros(len(ids), np.int64)

    def notes(words: Words) -> Notes:
        texts = [words(one) for one in train]
        return Notes(ids, subjects, never, texts, {}, generated=False, credentialed=records.provenance().credentialed)

    index = build_reports(ids, subjects, never, {kind: entries_of([()] * len(ids), kind) for kind in KINDS})
    scores = text_scores(index, notes(roles.ranked), ranker_encoder(settings, encoder))
    asking = {one.sample_id: ReportQuery(own, None, ((), (), ())) for one, own in zip(every, kin, strict=True)}
    labels = dict(enumerate(one.label for one in train))
    ranker, finder = partial(rank_by_text, index, scores), finder_of(settings, encoder)
    return ReportCorpus(
        index, notes(roles.searched), asking, ranker, finder, lambda number: roles.shown(train[number]), labels
    )


def check_ranker(settings: Settings, noun: str) -> None:
    """BadInput for a ranker by codes."""
    if settings.ranker not in ("text", "uniform"):
        raise BadInput(f"system.ranker={settings.ranker} reads codes, and {noun} have none: leave it out.")
