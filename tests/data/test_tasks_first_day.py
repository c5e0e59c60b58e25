"""Questions after a stay's first day: labels at their borders, who is left out, what is shown, eICU's own tables."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ghar.data.cohort import Cohort
from ghar.data.tasks.first_day import FIRST_DAY, FirstDayTask, first_day_samples
from ghar.errors import BadInput
from tests.data.audit import audit
from tests.data.small import DAY, HOUR, START, small_cohort

MINUTE = timedelta(minutes=1)


@pytest.mark.parametrize(("task", "label"), [("los_24h", 2), ("mortality_24h", 1)])
def test_a_death_on_the_third_day(task: FirstDayTask, label: int) -> None:
    cohort = small_cohort([(1, 1, START, START + 3 * DAY + HOUR, START + 3 * DAY)])
    about, [sample], left_out = first_day_samples(cohort, task)
    assert about.name == task and sample.label == label and not left_out
    assert sample.prediction_time == START + DAY and sample.outcome_time == START + 3 * DAY


@pytest.mark.parametrize(("stay", "death", "asked"), [
    (DAY - MINUTE, None, False), (DAY, None, False), (DAY + MINUTE, None, True), (2 * DAY, DAY, False),
    (2 * DAY, DAY - HOUR, False), (2 * DAY, DAY + MINUTE, True),
])  # fmt: skip
def test_who_has_left_or_died_within_the_day_is_not_asked_about(stay, death, asked: bool) -> None:
    """A second stay is always asked about, for a task without a sample is refused."""
    dies = None if death is None else START + death
    cohort = small_cohort([(1, 1, START, START + stay, dies), (2, 2, START, START + 9 * DAY, None)])
    for task in FIRST_DAY:
        samples, left_out = first_day_samples(cohort, task)[1:]
        assert [s.visit_id for s in samples] == ([1, 2] if asked else [2])
        assert left_out == ({} if asked else {"over_in_24h": 1})


@given(minutes=st.integers(24 * 60 + 1, 40 * 24 * 60))
@settings(max_examples=60, deadline=None)
def test_classes_of_length_are_those_of_whole_days(minutes: int) -> None:
    cohort = small_cohort([(1, 1, START, START + minutes * MINUTE, None)])
    about, [sample], _ = first_day_samples(cohort, "los_24h")
    days = minutes // (24 * 60)
    assert about.labels[sample.label] == ("9" if days > 14 else "8" if days > 7 else str(days))


def test_it_shows_what_was_recorded_in_the_first_day() -> None:
    """Of the stay itself, and of an earlier one whose codes were given late."""
    late, start = START + 10 * DAY + 30 * HOUR, START + 10 * DAY
    cohort = small_cohort(
        [(1, 1, START, START + DAY, None), (1, 2, start, start + 4 * DAY, None)],
        [(1, 1, "ICD10CM/A", START, START + DAY), (1, 1, "ICD10CM/B", START, late),
         (1, 2, "DRUG/early", start + HOUR), (1, 2, "DRUG/late", start + 25 * HOUR),
         (1, 2, "ICD10CM/C", start, start + 4 * DAY)],
    )  # fmt: skip
    [sample] = first_day_samples(cohort, "mortality_24h")[1]
    first, second = sample.history
    assert first.diagnoses == ("ICD10CM/A",) and second.medications == ("DRUG/early",) and not second.diagnoses


def test_a_stay_without_an_end_is_counted_and_none_to_ask_about_is_refused() -> None:
    visits = [(1, 1, START, None, None), (2, 2, START, START + 2 * DAY, None)]
    assert first_day_samples(small_cohort(visits), "los_24h")[2] == {"no_end": 1}
    with pytest.raises(BadInput, match="of 1 stays none went on after 24 hours"):
        first_day_samples(small_cohort(visits[:1]), "los_24h")


@pytest.mark.slow
def test_eicu_is_asked_within_the_hospital_stay(eicu_cohort: Cohort, demo_eicu: Path) -> None:
    """Counted again from the tables: minutes from the admission to the unit, and the unit's status."""
    table = pl.read_csv(demo_eicu / "patient.csv.gz", infer_schema_length=None)
    asked = table.filter(pl.col("unitdischargeoffset") > 24 * 60)
    days = asked["unitdischargeoffset"] // (24 * 60)
    wanted = Counter(9 if d > 14 else 8 if d > 7 else d for d in days.to_list())
    about, samples, left_out = first_day_samples(eicu_cohort, "los_24h")
    assert "ICU" in about.question and left_out == {"over_in_24h": table.height - asked.height} == {"over_in_24h": 894}
    assert Counter(int(about.labels[s.label]) for s in samples) == wanted and len(samples) == 1626
    samples = first_day_samples(eicu_cohort, "mortality_24h")[1]
    assert sum(s.label for s in samples) == (asked["unitdischargestatus"] == "Expired").sum() == 79
    group = dict(eicu_cohort.visits.select("visit_id", "group").iter_rows())
    assert all(group[visit.visit_id] == group[s.visit_id] for s in samples for visit in s.history)
    assert audit(eicu_cohort, samples[::9]).is_empty()
