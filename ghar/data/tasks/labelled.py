"""Visits of codes for labels of any time: what a system that reads visits is shown for EHRSHOT's tasks and label files.

One rule says what was there at a prediction time: everything with a time up to and including it, MEDS's own rule. The
labels (`ghar.data.tasks.ehrshot`) and EHR-RAG's event store (`ghar.retrieval.event_store`) follow it too: only what
comes later is left to predict.

leakage="paper"   the visits that have begun; those that are over with all their codes, as in the other tasks
                  (`ghar.data.tasks.stays`), the others with the codes that were known by then
leakage="strict"  the same visits, all of them with the codes that were known by then only

The newest visit is always there, also where nothing of it is known yet; a patient without any visit so far has one
visit `NO_VISIT` that begins at the prediction time and holds nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

import polars as pl

from ghar.data.cohort import NO_VISIT, Cohort, Sample, Visit
from ghar.data.tasks.ehrshot import check_order
from ghar.data.tasks.stays import Leakage, in_order_of
from ghar.data.visit_codes import NEVER, VisitCodes, without_collector
from ghar.errors import BadInput


@dataclass(eq=False)
class _Stays:
    """One patient's visits in time order, and when each begins and is over (microseconds)."""

    visits: list[Visit] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def at(self, now: int, visit_codes: VisitCodes, leakage: Leakage) -> list[Visit]:
        """What may be shown of the visits that have begun."""
        begun = bisect_right(self.starts, now)
        stays = zip(self.visits[:begun], self.ends[:begun], strict=True)
        return [visit if leakage == "paper" and end <= now else visit_codes.until(visit, now) for visit, end in stays]


@without_collector()
def labelled_samples(cohort: Cohort, task: str, labels: pl.DataFrame, leakage: Leakage) -> list[Sample]:
    """A sample for each label, in their order.

    labels: subject_id, prediction_time, label. sample_id is "task-patient-row", whichever system
    plays it. Raises BadInput for visits out of order, for a source whose stays have no order (eICU), for a patient of
    whom the cohort has nothing, and for an unknown leakage.
    """
    if leakage not in ("paper", "strict"):
        raise BadInput(f"There is no leakage={leakage!r}: choose paper or strict.")
    check_order(cohort)
    cohort = in_order_of(cohort, leakage, legacy_order=False)
    _check_patients(cohort, task, labels)
    stays, visit_codes = _by_patient(cohort), cohort.shown
    none = _Stays()
    rows = labels.select("subject_id", "prediction_time", pl.col("prediction_time").to_physical().alias("now"), "label")
    samples = []
    for place, (subject, at, now, label) in enumerate(rows.iter_rows()):
        history = stays.get(subject, none).at(now, visit_codes, leakage) or [Visit(NO_VISIT, at)]
        name = f"{task}-{subject}-{place}"
        samples.append(
            Sample(name, subject, history[-1].visit_id, at, tuple(history), label, credentialed=cohort.credentialed)
        )
    return samples


def _by_patient(cohort: Cohort) -> dict[int, _Stays]:
    """Every patient's visits; one whose end no one knows is never over."""
    columns = cohort.visits.select(
        "subject_id", "visit_id", pl.col("start").to_physical(), pl.col("end").to_physical().fill_null(NEVER)
    )
    stays: dict[int, _Stays] = {}
    for subject, visit_id, start, end in columns.iter_rows():
        own = stays.setdefault(subject, _Stays())
        own.visits.append(cohort.shown.visits[visit_id])
        own.starts.append(start)
        own.ends.append(end)
    return stays


def _check_patients(cohort: Cohort, task: str, labels: pl.DataFrame) -> None:
    """Most patients have a visit; only for the others the events are looked through."""
    without = labels.join(cohort.visits, on="subject_id", how="anti").select(pl.col("subject_id").unique())
    if without.is_empty():
        return
    subjects = cohort.scan().select(pl.col("subject_id").unique()).collect(engine="streaming")
    unknown = without.join(subjects, on="subject_id", how="anti")["subject_id"].sort()
    if len(unknown):
        others = f", and so have {len(unknown) - 1:,} more" if len(unknown) > 1 else ""
        raise BadInput(
            f"Patient {unknown[0]} has a label of {task} and no event in the {cohort.name}{others}: leave these labels "
            "out, or read the tables that they were made of."
        )
