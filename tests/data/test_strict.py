"""No task shows anything early: the audit of every strict task on every source is empty, and it can find leaks."""

from collections.abc import Callable

import polars as pl
import pytest

from ghar.data.cohort import Cohort
from ghar.data.tasks.ehrshot import TASKS as EHRSHOT
from ghar.data.tasks.ehrshot import ehrshot_labels
from ghar.data.tasks.next_visit import next_visit_samples
from ghar.data.tasks.series import TASKS as SERIES
from ghar.data.tasks.series import series_samples
from ghar.data.tasks.stays import Leakage, make_samples
from ghar.errors import BadInput
from tests.data.audit import audit, ehrshot_samples

pytestmark = pytest.mark.slow

Maker = Callable[[Cohort, Leakage], tuple]
ON_VISITS: dict[str, Maker] = {
    "los": lambda c, m: make_samples(c, "los", leakage=m),
    "read": lambda c, m: make_samples(c, "read", leakage=m),
    "dec": lambda c, m: make_samples(c, "dec", leakage=m),
    "dec at admission": lambda c, m: make_samples(c, "dec", leakage=m, anchor="admission"),
    "kare mortality": lambda c, m: next_visit_samples(c, "mortality", leakage=m),
    "kare readmission": lambda c, m: next_visit_samples(c, "readmission", leakage=m),
    "kare readmission, released": lambda c, m: next_visit_samples(c, "readmission", leakage=m, window="released"),
}
SOURCES = ("mimic3", "mimic4", "eicu", "meds")


def features(cohort: Cohort) -> tuple[str, ...]:
    """The three commonest vital signs, where there are any, and labs."""
    counted = cohort.events.filter(pl.col("numeric_value").is_not_null())["code"].value_counts(sort=True)["code"]
    return tuple(code for kind in ("LAB/", "VITAL/") for code in [c for c in counted if c.startswith(kind)][:3])


@pytest.fixture(params=SOURCES)
def cohort(request) -> Cohort:
    return request.getfixturevalue(f"{request.param}_cohort")


def test_tasks_on_visits(cohort):
    tasks = {name: make for name, make in ON_VISITS.items() if cohort.stay == "hospital" or "readmission" not in name}
    for name, make in tasks.items():
        strict = make(cohort, "strict")[1]
        assert strict and audit(cohort, strict).is_empty(), name
    assert audit(cohort, make_samples(cohort, "los")[1]).height > 0  # the audit does find what paper shows early


def test_tasks_on_time_series(cohort):
    names = [name for name in SERIES if name != "dec"]  # tests/data/test_tasks_series.py has it, on fewer samples
    variants = [(name, {}) for name in names] + [("los", {"los": "remaining"})]
    if cohort.stay == "hospital":  # else the ICU stays are the visits
        variants += [(name, {"stay": "icu"}) for name in names]
    shown = features(cohort)
    for name, options in variants:
        about, strict = series_samples(cohort, name, leakage="strict", features=shown, **options)
        assert strict and audit(cohort, strict).is_empty(), (name, options)
        assert len({s.sample_id for s in strict}) == len(strict) and about.name == f"series-{name}"


@pytest.mark.parametrize("task", list(EHRSHOT))
def test_tasks_on_events(cohort, task):
    if cohort.stay == "ICU":  # trap 7: no order of hospital stays, so no such task
        with pytest.raises(BadInput, match="no order of hospital stays"):
            ehrshot_samples(cohort, task, leakage="strict")
        return
    labels = ehrshot_labels(cohort, task)[0]
    few = labels.gather_every(max(labels.height // 60, 1))  # lab_anemia has thousands
    strict = ehrshot_samples(cohort, task, leakage="strict", labels=few)[1]
    assert len(strict) == few.height > 0 and audit(cohort, strict).is_empty()
