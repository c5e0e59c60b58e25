"""What a model is shown before anybody could have known it: an independent look at the samples of any task."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import polars as pl

from ghar.data.cohort import Cohort, Sample
from ghar.data.tasks.samples import EventSample, TimeSeriesSample

TIME = pl.Datetime("us")
COLUMNS = ("sample_id", "visit_id", "code", "prediction_time", "recorded")


def audit(cohort: Cohort, samples: Sequence[Sample | EventSample | TimeSeriesSample]) -> pl.DataFrame:
    """Everything shown that was recorded after the prediction time.

    Columns sample_id, visit_id, code, prediction_time, recorded: the first time the fact was known, null for one that
    the cohort does not have. Empty for leakage="strict". Works from samples and events alone, not from the code that
    made the samples. Static facts (age group, sex: no time at all) are known from the beginning.
    """
    visits = [sample for sample in samples if isinstance(sample, Sample)]
    events = [sample for sample in samples if isinstance(sample, EventSample)]
    series = [sample for sample in samples if isinstance(sample, TimeSeriesSample)]
    return pl.concat([_visits(cohort, visits), _events(cohort, events), _series(cohort, series)])


def _visits(cohort: Cohort, samples: Sequence[Sample]) -> pl.DataFrame:
    shown = [
        (sample.sample_id, visit.visit_id, code, sample.prediction_time)
        for sample in samples
        for visit in sample.history
        for code in (*visit.diagnoses, *visit.procedures, *visit.medications)
    ]
    schema = {"sample_id": pl.String, "visit_id": pl.Int64, "code": pl.String, "prediction_time": TIME}
    first = cohort.scan().group_by("visit_id", "code").agg(pl.col("recorded").min())
    rows = pl.LazyFrame(shown, schema, orient="row")
    return _late(rows.join(first, on=["visit_id", "code"], how="left", maintain_order="left"))


def _events(cohort: Cohort, samples: Sequence[EventSample]) -> pl.DataFrame:
    fact = ["subject_id", "time", "code", "visit_id", "numeric_value", "text_value"]
    first = cohort.scan().group_by(fact).agg(pl.col("recorded").min())
    parts = []
    for sample in samples:  # one at a time: together they hold the events of a patient many times over
        shown = sample.events.select(fact).with_columns(
            sample_id=pl.lit(sample.sample_id), prediction_time=pl.lit(sample.prediction_time, TIME)
        )
        parts.append(shown.lazy().filter(pl.col("time").is_not_null()))
    if not parts:
        return pl.DataFrame(schema=_SCHEMA)
    rows = pl.concat(parts).join(first, on=fact, how="left", nulls_equal=True)
    return _late(rows)


def _series(cohort: Cohort, samples: Sequence[TimeSeriesSample]) -> pl.DataFrame:
    used = [np.unique(sample.source[sample.source >= 0]) for sample in samples]
    sample = pl.Series(np.repeat(np.arange(len(samples)), [len(rows) for rows in used]), dtype=pl.Int64)
    about = pl.LazyFrame(
        [(i, s.sample_id, s.prediction_time) for i, s in enumerate(samples)],
        {"_sample": pl.Int64, "sample_id": pl.String, "prediction_time": TIME},
        orient="row",
    )
    rows = pl.LazyFrame({"_sample": sample, "_row": np.concatenate([*used, np.zeros(0, np.int64)]).astype(np.int64)})
    events = cohort.scan().with_row_index("_row").with_columns(pl.col("_row").cast(pl.Int64))
    joined = rows.join(about, on="_sample", how="left").join(events, on="_row", how="left", maintain_order="left")
    return _late(joined)


_SCHEMA = {"sample_id": pl.String, "visit_id": pl.Int64, "code": pl.String, "prediction_time": TIME, "recorded": TIME}


def _late(rows: pl.LazyFrame) -> pl.DataFrame:
    late = pl.col("recorded").is_null() | (pl.col("recorded") > pl.col("prediction_time"))
    return rows.filter(late).select(COLUMNS).collect()
