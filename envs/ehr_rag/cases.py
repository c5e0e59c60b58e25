"""Cases of EHR-RAG: a task's samples, each with its patient's static facts and with what prompts say of the task."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import count

import polars as pl

from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.tasks.cards import TaskCard
from ghar.data.tasks.splits import Splits
from ghar.data.views.events import event_label
from ghar.envs.case import Case
from ghar.envs.ehr_rag.episode import EventReading
from ghar.envs.records import Records
from ghar.envs.worlds.histories.truth import Gold
from ghar.errors import BadInput
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
class _PatientFacts:
    """Of one patient: labels of the static facts, and when the first event with a time became known."""

    facts: tuple[str, ...] = ()
    first: datetime | None = None


def event_cases(records: Records, clock: Clock) -> EventCases:
    """Cases of any task of visits; `place` counts them through the splits.

    Raises BadInput for a task without visits, and for a source whose hospital stays have no order.
    """
    _check_order(records.cohort)
    task, samples = records.task, records.splits
    patients, card = _read_facts(records.charted, clock), records.card
    places, ends = count(), _find_hidden_ends(records)
    gold = records.long_truth.gold if records.long_truth is not None else {}

    def cases(part: Sequence[Sample]) -> tuple[Case[EventReading], ...]:
        return tuple(
            _case(sample, next(places), patients[sample.subject_id], task, card, ends, gold.get(sample.subject_id, {}))
            for sample in part
        )

    all_cases = EventCases(task, Splits(*map(cases, (samples.train, samples.valid, samples.test))), {})
    firsts = [(patients[case.subject_id].first, case.reads.prediction_time) for case in all_cases.all]
    empty = sum(first is None or first > at for first, at in firsts)
    return replace(all_cases, counts={"samples without an earlier event": empty})


def _check_order(cohort: Cohort) -> None:
    if "group" in cohort.visits.columns:
        raise BadInput(
            f"The {cohort.name} have no order of hospital stays, so that no one knows which events came before a "
            "prediction, from which alone system=ehr_rag predicts: choose another data or another system."
        )


def _read_facts(cohort: Cohort, clock: Clock) -> defaultdict[int, _PatientFacts]:
    """What stands beside the events, by patient."""
    static = pl.col("time").is_null()
    people = cohort.scan().group_by("subject_id", maintain_order=True)
    table = people.agg(facts=pl.col("code").filter(static), first=clock_of(clock).min()).collect()
    names = cohort.names()
    facts_of: defaultdict[int, _PatientFacts] = defaultdict(_PatientFacts)
    for subject, facts, first in table.iter_rows():
        facts_of[subject] = _PatientFacts(tuple(event_label(code, names[code]) for code in facts), first)
    return facts_of


def _find_hidden_ends(records: Records) -> dict[int, datetime]:
    """Stay -> its end, where what is recorded then must not be shown at that very time: stays of no length, whose end
    is not yet known when they are predicted (`ghar.data.tasks.stays`)."""
    if records.config.data.leakage != "strict" or records.task.name not in ("los", "dec"):
        return {}
    visits = records.cohort.visits.filter(pl.col("end") == pl.col("start"))
    return dict(visits.select("visit_id", "end").iter_rows())


def _case(
    sample: Sample,
    place: int,
    patient: _PatientFacts,
    task: Task,
    card: TaskCard,
    ends: Mapping[int, datetime],
    gold: Gold,
) -> Case[EventReading]:
    text, at = "; ".join(patient.facts), sample.prediction_time
    if ends.get(sample.visit_id) == at:
        at -= timedelta(microseconds=1)
    about, reads = (sample.sample_id, sample.subject_id, sample.visit_id), EventReading(place, at, card, gold)
    return Case(*about, text, (), task, sample.label, reads, credentialed=sample.credentialed)
