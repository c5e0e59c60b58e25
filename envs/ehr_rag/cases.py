"""Cases of EHR-RAG: a task's samples, each with its patient's static facts and with what prompts say of the task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import polars as pl

from envs.ehr_rag.episode import EventCase
from envs.records import Records
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.tasks.cards import CARDS, TaskCard
from ghar.data.tasks.ehrshot import TASKS, ehrshot_labels
from ghar.data.tasks.splits import Splits, split_by_patient
from ghar.data.views.events import event_label
from ghar.errors import BadInput
from ghar.retrieval.event_build import clock_of
from ghar.retrieval.event_store import Clock


@dataclass(frozen=True)
class EventCases:
    """A task's cases by split. counts: for the report."""

    task: Task
    splits: Splits[EventCase]
    counts: dict[str, int]

    @property
    def all(self) -> list[EventCase]:
        """The cases of all splits, by patient and time."""
        cases = (*self.splits.train, *self.splits.valid, *self.splits.test)
        return sorted(cases, key=lambda case: (case.subject_id, case.prediction_time, case.sample_id))


@dataclass(frozen=True)
class _Known:
    """Of one patient: labels of the static facts, and when the first event with a time became known."""

    facts: tuple[str, ...] = ()
    first: datetime | None = None


def event_cases(records: Records, clock: Clock) -> EventCases:
    """Cases of any task of visits.

    Raises BadInput for a task without visits, and for a source whose hospital stays have no order.
    """
    _check_order(records.cohort)
    task, samples = task_splits(records)
    known, card = _known(records.charted, clock), card_of(task)

    def cases(part: Sequence[Sample]) -> tuple[EventCase, ...]:
        return tuple(_case(sample, known.get(sample.subject_id, _Known()), task, card) for sample in part)

    splits = Splits(cases(samples.train), cases(samples.valid), cases(samples.test))
    everyone = (*samples.train, *samples.valid, *samples.test)
    firsts = [(known.get(sample.subject_id, _Known()).first, sample.prediction_time) for sample in everyone]
    empty = sum(first is None or first >= at for first, at in firsts)
    return EventCases(task, splits, {"samples without an earlier event": empty})


def task_splits(records: Records) -> tuple[Task, Splits[Sample]]:
    """The task and its samples."""
    # TODO(merge): `return records.task, records.splits` once these know EHRSHOT's tasks, given labels and splits too
    name = records.config.task.name
    if name not in TASKS:
        return records.task, records.splits
    rows, about = ehrshot_labels(records.cohort, name)[0].iter_rows(), records.config.task
    samples = [Sample(f"{name}-{who}-{i}", who, -1, at, (), label) for i, (who, at, label) in enumerate(rows)]
    return TASKS[name], records.limited(split_by_patient(samples, about.split, about.split_seed))


def card_of(task: Task) -> TaskCard:
    """The task's card; where it has none, one made from its question."""
    # TODO(merge): ghar.data.tasks.cards.card_of
    cards: Mapping[str, TaskCard] = {**CARDS}
    if task.name in cards:
        return cards[task.name]
    speaks = "findings, treatments and events that speak"
    highest = "yes" if len(task.labels) == 2 else "a high answer"
    return TaskCard(
        title=task.name,
        category="Prediction",
        description=task.question,
        factual=f"{speaks} for {highest}: {task.question}",
        counterfactual=f"{speaks} against it: {task.question}",
        meanings=task.labels,
        advice="",
    )


def _check_order(cohort: Cohort) -> None:
    if "group" in cohort.visits.columns:
        raise BadInput(
            f"The {cohort.name} have no order of hospital stays, so that no one knows which events came before a "
            "prediction, from which alone system=ehr_rag predicts: choose another data or another system."
        )


def _known(cohort: Cohort, clock: Clock) -> dict[int, _Known]:
    """What stands beside the events, by patient."""
    static = pl.col("time").is_null()
    people = cohort.scan().group_by("subject_id", maintain_order=True)
    table = people.agg(facts=pl.col("code").filter(static), first=clock_of(clock).min()).collect()
    names = cohort.names()
    return {
        subject: _Known(tuple(event_label(code, names[code]) for code in facts), first)
        for subject, facts, first in table.iter_rows()
    }


def _case(sample: Sample, known: _Known, task: Task, card: TaskCard) -> EventCase:
    place = int(sample.sample_id.rpartition("-")[2])
    text = "; ".join(known.facts)
    return EventCase(sample.sample_id, sample.subject_id, place, text, sample.prediction_time, task, card, sample.label)
