"""EXPRAG on a label of visits: which stays count as experience, what they may be ranked by, and who asks.

Experience is what training patients went through: their labelled stays, one entry a stay (its latest label), each with
the report of the whole stay and its own outcome of the same task. A stay is ranked by the codes that its own sample
showed, all visits of the history together, and the patient who asks by the codes of the own sample in the same way: so
nothing that was known only later takes part on either side, and both are compared as they stood at their prediction
times. No stay of the patient who asks is ever offered, in training neither.

The times of two patients are not compared: MIMIC shifts every patient's dates, so whether an outcome was known before
another patient's prediction time cannot be asked there. For sources with true dates that would be an option of its
own; it is not here yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl

from ghar.data.cohort import Sample, Task
from ghar.data.readers.notes import Notes
from ghar.data.tasks.splits import Splits
from ghar.data.tasks.subsets import known_by, micros
from ghar.data.views.visits import visit_lists
from ghar.envs.case import Case
from ghar.envs.exprag.corpus import StayNames, encoder_of, finder_of, make_ranker
from ghar.envs.exprag.label_pretraining import practice
from ghar.envs.exprag.label_system import Experience, build_label_system, check_label_settings
from ghar.envs.exprag.report_corpus import ReportCorpus
from ghar.envs.exprag.rule import MajorityOfOutcomes
from ghar.envs.exprag.settings import Settings
from ghar.envs.records import Records
from ghar.envs.system import Reader, System
from ghar.errors import BadInput
from ghar.retrieval.reports import KINDS, ReportIndex, ReportQuery, build_reports, entries_of


def build_labels(records: Records, settings: Settings) -> System[None]:
    """BadInput for settings that labels know nothing of, for a task without visits, and where no stay is experience."""
    check_label_settings(settings, records.config.task.name)
    reports = records.reports(settings.notes)
    corpus = _corpus(records, settings, reports)
    experience = Experience(
        corpus=corpus,
        noun="stays",
        cases=partial(_cut, records),
        rule=MajorityOfOutcomes(_usual(records.splits.train, records.task)),
        sources=(reports,),
        practice=partial(practice, records, settings, corpus),
    )
    return build_label_system(records, settings, experience)


def _cut(records: Records, reader: Reader) -> Splits[Case[None]]:
    """Cases whose record fits env.history_tokens as a reader counts."""
    env, task, names = records.config.env, records.task, records.described

    def name_of(code: str) -> str:
        return names.get(code, code)

    def cases(samples: Sequence[Sample]) -> tuple[Case[None], ...]:
        views = visit_lists(samples, name_of, style=env.prompts, budget=env.history_tokens, count=reader.count)
        return tuple(
            Case(s.sample_id, s.subject_id, s.visit_id, view.text, (), task, s.label, credentialed=s.credentialed)
            for s, view in zip(samples, views, strict=True)
        )

    splits = records.splits
    return Splits(cases(splits.train), cases(splits.valid), cases(splits.test))


def _corpus(records: Records, settings: Settings, reports: Notes) -> ReportCorpus:
    splits = records.splits
    stays = experience(splits.train, reports)
    if not stays:
        raise BadInput("No training patient has a stay with a label, so there is no experience: use more patients.")
    earlier = records.config.data.earlier
    index, encoder = index_samples(stays, earlier=earlier), encoder_of(records.config)
    return ReportCorpus(
        index,
        reports,
        Asking({s.sample_id: s for part in (splits.train, splits.valid, splits.test) for s in part}, earlier),
        make_ranker(settings, KINDS[0], index, reports, encoder),
        finder_of(settings, encoder),
        StayNames(records.cohort.shown.visits, records.described),
        {sample.visit_id: sample.label for sample in stays},
    )


def experience(train: Sequence[Sample], reports: Notes) -> list[Sample]:
    """The latest sample of each stay that has a report."""
    latest = {sample.visit_id: sample for sample in sorted(train, key=lambda sample: sample.prediction_time)}
    return [sample for sample in latest.values() if sample.visit_id in reports]


def index_samples(samples: Sequence[Sample], *, earlier: bool = False) -> ReportIndex:
    """An index of stays by the codes that their samples show; among equally similar ones the later comes first.

    earlier: later by when the outcome was known, which is then when they may first be shown.
    """
    visit_id = np.array([sample.visit_id for sample in samples], np.int64)
    subject_id = np.array([sample.subject_id for sample in samples], np.int64)
    when = pl.Series([sample.prediction_time for sample in samples], dtype=pl.Datetime("us")).to_physical().to_numpy()
    when = known_by(samples) if earlier else when
    entries = {kind: entries_of([sample.history for sample in samples], kind) for kind in KINDS}
    return build_reports(visit_id, subject_id, when, entries)


@dataclass(frozen=True, eq=False)
class Asking(Mapping[str, ReportQuery]):
    """What may be known of each sample that asks, by its id; made when it asks."""

    samples: Mapping[str, Sample]
    earlier: bool

    def __getitem__(self, sample_id: str) -> ReportQuery:
        sample = self.samples[sample_id]
        one, two, three = (
            tuple(dict.fromkeys(code for visit in sample.history for code in getattr(visit, kind))) for kind in KINDS
        )
        before = micros(sample.prediction_time) + 1 if self.earlier else None  # what is known by then may be shown
        return ReportQuery(sample.subject_id, before, (one, two, three))

    def __iter__(self) -> Iterator[str]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


def _usual(train: Sequence[Sample], task: Task) -> tuple[int, ...]:
    """Training samples of each label."""
    return tuple(np.bincount([sample.label for sample in train], minlength=len(task.labels)).tolist())
