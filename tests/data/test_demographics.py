"""Age and sex of time series, counted again from the demo's events one by one."""

from __future__ import annotations

import dataclasses
import math

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.tasks.series import series_samples
from ghar.envs.graphwalker.series import with_demographics


@pytest.mark.slow
def test_age_is_that_of_the_newest_admission_before_the_prediction(mimic4_cohort: Cohort) -> None:
    _, samples = series_samples(mimic4_cohort, "mortality")
    events = mimic4_cohort.events.select("subject_id", "time", "code", "numeric_value").to_dicts()
    found = with_demographics(samples, mimic4_cohort)
    assert [one.sample_id for one in found] == [one.sample_id for one in samples] and len(samples) > 100
    for one in found:
        own = [e for e in events if e["subject_id"] == one.subject_id]
        ages = [(e["time"], e["numeric_value"]) for e in own if e["code"] == "AGE" and e["time"] <= one.prediction_time]
        [sex] = [e["code"] for e in own if e["code"].startswith("GENDER/")]
        assert one.history.static == (max(ages)[1], float(sex == "GENDER/F"))
    assert {one.history.static[1] for one in found} == {0.0, 1.0}


def test_what_the_cohort_does_not_know_is_no_number(mimic4_cohort: Cohort) -> None:
    _, samples = series_samples(mimic4_cohort, "mortality")
    who = samples[0].subject_id
    facts = pl.col("code").str.starts_with("GENDER/") | (pl.col("code") == "AGE")
    events = mimic4_cohort.events.filter(~(facts & (pl.col("subject_id") == who)))
    without = dataclasses.replace(mimic4_cohort, table=events)
    for one in with_demographics(samples, without):
        assert all(map(math.isnan, one.history.static)) == (one.subject_id == who)
