"""Age at the prediction and sex, as the static numbers of time series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import polars as pl

from ghar.data.cohort import Cohort, Sample
from ghar.data.tasks.samples import TimeSeries

FEMALE = {"GENDER/F": 1.0, "GENDER/M": 0.0}
UNKNOWN = float("nan")


def with_demographics(samples: Sequence[Sample[TimeSeries]], cohort: Cohort) -> list[Sample[TimeSeries]]:
    """The samples with `TimeSeries.static` = (years, 1 for female and 0 for male), each NaN where no one knows it."""
    sexes = _sexes(cohort)
    people = zip(samples, _ages(samples, cohort), strict=True)
    return [
        replace(one, history=replace(one.history, static=(years, sexes.get(one.subject_id, UNKNOWN))))
        for one, years in people
    ]


def _ages(samples: Sequence[Sample[TimeSeries]], cohort: Cohort) -> list[float]:
    """Years at the patient's last age event up to the prediction, of each sample."""
    asked = {"subject_id": pl.Int64, "time": pl.Datetime("us")}
    rows = pl.DataFrame([(s.subject_id, s.prediction_time) for s in samples], schema=asked, orient="row")
    ages = (
        cohort.scan()
        .filter(pl.col("code") == "AGE")
        .select(pl.col("subject_id").cast(pl.Int64), pl.col("time").cast(pl.Datetime("us")), years="numeric_value")
        .drop_nulls()
        .collect(engine="streaming")
        .sort("time", "years")
    )
    table = rows.with_row_index("row").sort("time").join_asof(ages, on="time", by="subject_id", check_sortedness=False)
    return [UNKNOWN if years is None else float(years) for years in table.sort("row")["years"]]


def _sexes(cohort: Cohort) -> Mapping[int, float]:
    rows = cohort.scan().filter(pl.col("code").is_in(list(FEMALE))).select("subject_id", "code").collect()
    return {subject: FEMALE[code] for subject, code in rows.iter_rows()}
