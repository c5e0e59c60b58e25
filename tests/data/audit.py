"""What samples show that was recorded after their prediction, from samples and events alone. Samples of all events."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ghar.data.audit import TIME, collect_series_facts, collect_visit_facts, late_rows
from ghar.data.cohort import NO_VISIT, Cohort, Sample, Task
from ghar.data.tasks.ehrshot import TASKS, EhrshotTask, check_order, ehrshot_labels, label_indices, require_labels
from ghar.data.tasks.samples import TimeSeries
from ghar.data.tasks.stays import Leakage
from ghar.errors import BadInput

SCHEMA = {"sample_id": pl.String, "visit_id": pl.Int64, "code": pl.String, "prediction_time": TIME, "recorded": TIME}


def audit(cohort: Cohort, samples: Sequence[Sample[Any]]) -> pl.DataFrame:
    """Everything shown that was recorded after the prediction time.

    Columns sample_id, visit_id, code, prediction_time, recorded: the first time the fact was known, null for one that
    the cohort does not have. Empty for leakage="strict". Works from samples and events alone, not from the code that
    made the samples. Static facts (age group, sex: no time at all) are known from the beginning.
    """
    visits = [sample for sample in samples if isinstance(sample.history, tuple)]
    events = [sample for sample in samples if isinstance(sample.history, pl.DataFrame)]
    series = [sample for sample in samples if isinstance(sample.history, TimeSeries)]
    shown = late_rows(collect_visit_facts(cohort, visits)), late_rows(collect_series_facts(cohort, series))
    return pl.concat([shown[0], _events(cohort, events), shown[1]])


def _events(cohort: Cohort, samples: Sequence[Sample[pl.DataFrame]]) -> pl.DataFrame:
    fact = ["subject_id", "time", "code", "visit_id", "numeric_value", "text_value"]
    first = cohort.scan().group_by(fact).agg(pl.col("recorded").min())
    parts = []
    for sample in samples:  # one at a time: together they hold the events of a patient many times over
        shown = sample.history.select(fact).with_columns(
            sample_id=pl.lit(sample.sample_id), prediction_time=pl.lit(sample.prediction_time, TIME)
        )
        parts.append(shown.lazy().filter(pl.col("time").is_not_null()))
    if not parts:
        return pl.DataFrame(schema=SCHEMA)
    rows = pl.concat(parts).join(first, on=fact, how="left", nulls_equal=True)
    return late_rows(rows)


def ehrshot_samples(
    cohort: Cohort, task: EhrshotTask, *, leakage: Leakage = "paper", labels: pl.DataFrame | None = None
) -> tuple[Task, list[Sample[pl.DataFrame]]]:
    """The task and its samples, by patient and time; `labels` are the benchmark's own instead of counted ones.

    labels: what `ghar.data.readers.meds_labels.read_labels` returns, or `ehrshot_labels`. Raises BadInput when there is
    none, when one is of a patient who is not in the cohort or when its value is not one of the task's.
    """
    if leakage not in ("paper", "strict"):
        raise BadInput(f"There is no leakage={leakage!r}: choose paper or strict.")
    check_order(cohort)
    about = TASKS.get(task)
    counted = ehrshot_labels(cohort, task)[0] if labels is None or about is None else label_indices(labels, about)
    require_labels(counted, cohort, task)
    assert about is not None  # `ehrshot_labels` refused an unknown task
    subjects = cohort.events["subject_id"].to_numpy()
    times = cohort.events["time"].fill_null(pl.datetime(1, 1, 1)).to_physical().to_numpy()
    samples = []
    for i, (subject, at, label) in enumerate(counted.iter_rows()):
        first, last = np.searchsorted(subjects, [subject, subject + 1])
        if first == last:
            raise BadInput(f"Patient {subject} has a label of {task} and no event in the {cohort.name}.")
        until = pl.Series([at], dtype=pl.Datetime("us")).to_physical()[0]
        stop = first + np.searchsorted(times[first:last], until, side="right")
        shown = cohort.events[int(first) : int(stop)]
        if leakage == "strict":
            static = pl.col("time").is_null()
            shown = shown.filter(static | (pl.col("recorded") <= at).fill_null(False))
        name = f"{task}-{subject}-{i}"
        samples.append(Sample(name, subject, NO_VISIT, at, shown, label, credentialed=cohort.credentialed))
    return about, samples
