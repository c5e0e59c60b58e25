"""No task shows anything early: the audit of every strict task on every source is empty, and it can find leaks."""

from collections.abc import Callable

import polars as pl
import pytest

from ghar.data.audit import audit
from ghar.data.cohort import Cohort
from ghar.data.tasks import Leakage, make_samples
from ghar.data.tasks_ehrshot import TASKS as EHRSHOT
from ghar.data.tasks_ehrshot import ehrshot_samples
from ghar.data.tasks_kare import kare_samples
from ghar.data.tasks_series import TASKS as SERIES
from ghar.data.tasks_series import series_samples
from ghar.errors import BadInput

Maker = Callable[[Cohort, Leakage], tuple]
ON_VISITS: dict[str, Maker] = {
    "los": lambda c, m: make_samples(c, "los", leakage=m),
    "read": lambda c, m: make_samples(c, "read", leakage=m),
    "dec": lambda c, m: make_samples(c, "dec", leakage=m),
    "dec at admission": lambda c, m: make_samples(c, "dec", leakage=m, anchor="admission"),
    "kare mortality": lambda c, m: kare_samples(c, "mortality", leakage=m),
    "kare readmission": lambda c, m: kare_samples(c, "readmission", leakage=m),
    "kare readmission, released": lambda c, m: kare_samples(c, "readmission", leakage=m, window="released"),
}
SOURCES = ("mimic3", "mimic4", "eicu", "meds")


def features(cohort: Cohort) -> tuple[str, ...]:
    """Vital signs where there are any, and the three commonest labs."""
    counted = cohort.events.filter(pl.col("numeric_value").is_not_null())["code"].value_counts(sort=True)["code"]
    labs = [code for code in counted if code.startswith("LAB/")][:3]
    return (*labs, *(code for code in counted if code.startswith("VITAL/")))


@pytest.fixture(params=SOURCES)
def cohort(request) -> Cohort:
    return request.getfixturevalue(f"{request.param}_cohort")


def test_tasks_on_visits(cohort):
    for name, make in ON_VISITS.items():
        strict = make(cohort, "strict")[1]
        assert strict and audit(cohort, strict).is_empty(), name
        assert audit(cohort, make(cohort, "paper")[1]).height > 0, name


def test_tasks_on_time_series(cohort):
    for name in SERIES:
        for options in ({}, {"stay": "icu"}, {"los": "remaining"} if name == "los" else {}):
            about, strict = series_samples(cohort, name, leakage="strict", features=features(cohort), **options)
            assert strict and audit(cohort, strict).is_empty(), (name, options)
            assert len({s.sample_id for s in strict}) == len(strict) and about.name == f"series-{name}"


@pytest.mark.parametrize("task", list(EHRSHOT))
def test_tasks_on_events(cohort, task):
    if cohort.stay == "ICU":  # trap 7: no order of hospital stays, so no such task
        with pytest.raises(BadInput, match="no order of hospital stays"):
            ehrshot_samples(cohort, task, leakage="strict")
        return
    strict = ehrshot_samples(cohort, task, leakage="strict")[1]
    assert strict and audit(cohort, strict[::40]).is_empty()  # all of the MIMIC-IV demo: test_tasks_ehrshot.py
