"""Cases of EHR-RAG: a task's samples, each with its patient's static facts and with what prompts say of the task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count

import polars as pl

from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.stay_records import WITHOUT_STAY, StayRecords
from ghar.data.tasks.splits import Splits
from ghar.data.views.events import event_label
from ghar.envs.case import Case
from ghar.envs.ehr_rag.episode import EventReading
from ghar.envs.records import Records
from ghar.retrieval.event_build import clock_of
from ghar.retrieval.event_store import Clock


@dataclass(frozen=True)
class EventCases:
    """A task's cases by split. counts: for the report."""

    task: Task
    splits: Splits[Case[EventReading]]
    counts: dict[str, int]

    @property
    def all(self) -> list[Case[EventReading]]:
        """The cases of all splits, by patient and time."""
        cases = (*self.splits.train, *self.splits.valid, *self.splits.test)
        return sorted(cases, key=lambda case: (case.subject_id, case.reads.prediction_time, case.sample_id))


@dataclass(frozen=True)
class _RecordFacts:
    """Of one record: labels of the static facts, and when the first event with a time became known."""

    facts: tuple[str, ...] = ()
    first: datetime | None = None


def event_cases(records: Records, stays: StayRecords, clock: Clock) -> EventCases:
    """Cases of any task of visits; `place` counts them through the splits. BadInput for a task without visits."""
    task, samples = records.task, records.splits
    facts, card = _read_facts(stays.cohort, clock), records.card
    places, ends = count(), _find_hidden_ends(records)
    gold = records.long_truth.gold if records.long_truth is not None else {}

    def case(sample: Sample) -> Case[EventReading]:
        record = stays.record(sample.subject_id, sample.visit_id)
        telling = gold.get(sample.subject_id, {})
        reads = EventReading(next(places), record, _newest(sample, ends), card, telling)
        about, text = (sample.sample_id, sample.subject_id, sample.visit_id), "; ".join(facts[record].facts)
        return Case(*about, text, (), task, sample.label, reads, credentialed=sample.credentialed)

    parts = (tuple(map(case, part)) for part in (samples.train, samples.valid, samples.test))
    all_cases = EventCases(task, Splits(*parts), {})
    firsts = [(facts[case.reads.record].first, case.reads.prediction_time) for case in all_cases.all]
    empty = sum(first is None or first > at for first, at in firsts)
    left_out = {rule: n for rule, n in stays.cohort.counts.items() if rule == WITHOUT_STAY}
    return replace(all_cases, counts={"samples without an earlier event": empty} | left_out)


def _read_facts(cohort: Cohort, clock: Clock) -> defaultdict[int, _RecordFacts]:
    """What stands beside the events, by record."""
    events, names = cohort.scan(), cohort.names()
    firsts = events.group_by("subject_id").agg(first=clock_of(clock).min()).collect(engine="streaming")
    static = events.filter(pl.col("time").is_null()).group_by("subject_id", maintain_order=True).agg("code").collect()
    codes_of = dict(static.iter_rows())
    facts_of: defaultdict[int, _RecordFacts] = defaultdict(_RecordFacts)
    for record, first in firsts.iter_rows():
        labels = tuple(event_label(code, names[code]) for code in codes_of.get(record, ()))
        facts_of[record] = _RecordFacts(labels, first)
    return facts_of


def _find_hidden_ends(records: Records) -> dict[int, datetime]:
    """Stay -> its end, where what is recorded then must not be shown at that very time: stays of no length, whose end
    is not yet known when they are predicted (`ghar.data.tasks.stays`)."""
    if records.config.data.leakage != "strict" or records.task.name not in ("los", "dec"):
        return {}
    visits = records.cohort.visits.filter(pl.col("end") == pl.col("start"))
    return dict(visits.select("visit_id", "end").iter_rows())


def _newest(sample: Sample, ends: Mapping[int, datetime]) -> datetime:
    at = sample.prediction_time
    return at - timedelta(microseconds=1) if ends.get(sample.visit_id) == at else at
