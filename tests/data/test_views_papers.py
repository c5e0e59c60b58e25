"""Text views of KARE, GraphWalker and EHR-RAG: what they say, and that they keep to the budget, oldest out first."""

from datetime import datetime
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ghar.data.cohort import Sample, Task, Visit
from ghar.data.tasks.samples import TimeSeries
from ghar.envs.graphwalker.series_text import time_series
from ghar.envs.kare.cases import base_context
from ghar.errors import BadInput
from tests.data.audit import ehrshot_samples
from tests.data.event_rows import chunks, rows_of
from tests.data.small import DAY, HOUR, START, small_cohort

TASK = Task("t", "Will it rain?", ("no", "yes"))


def words(text: str) -> int:
    return len(text.split())


def visit(number: int, *diagnoses: str) -> Visit:
    return Visit(number, START + number * DAY, diagnoses, ("ICD10PCS/p",), ("DRUG/a", "DRUG/b"))


def patient(*visits: Visit) -> Sample:
    return Sample("s", 1, 1, datetime(2150, 6, 1), visits, 0)


def test_base_context():
    sample = patient(visit(0, "ICD10CM/x", "ICD9CM/x"), Visit(1, START))
    view = base_context(sample, TASK, lambda c: c.split("/")[1].upper(), budget=99, count=words)
    assert view.text.startswith("Task: Will it rain?\nPossible answers: no, yes\n")
    assert "Visit 0:\n  Conditions: X\n  Procedures: P\n  Drugs: A; B\nVisit 1:\n  Conditions: none" in view.text
    other = (patient(visit(5, "ICD10CM/y")), "yes")
    view = base_context(sample, TASK, str, budget=99, count=words, similar=[other])
    assert view.text.endswith(
        "Similar patient 1 (answer: yes):\nVisit 0:\n  Conditions: ICD10CM/y\n  Procedures: ICD10PCS/p\n"
        "  Drugs: DRUG/a; DRUG/b"
    )


def test_base_context_says_which_lists_the_budget_emptied():
    sample = patient(visit(0, "ICD10CM/x", "ICD9CM/y"))
    whole = words(base_context(sample, TASK, str, budget=99, count=words).text)
    view = base_context(sample, TASK, str, budget=whole - 1, count=words)
    assert (
        view.text.endswith("ICD10CM/x; ICD9CM/y\n  Procedures: ICD10PCS/p\n  Drugs: DRUG/a") and view.dropped_codes == 1
    )
    view = base_context(sample, TASK, str, budget=whole - 2, count=words)
    assert view.text.endswith("  Conditions: ICD10CM/x\n  Procedures: omitted\n  Drugs: omitted")
    assert view.dropped_codes == 4


@given(st.lists(st.integers(0, 4), min_size=1, max_size=5), st.integers(10, 120))
def test_base_context_keeps_to_the_budget(sizes, budget):
    sample = patient(*(visit(i, *(f"ICD10CM/{i}{k}" for k in range(n))) for i, n in enumerate(sizes)))
    try:
        view = base_context(sample, TASK, str, budget=budget, count=words)
    except BadInput:
        assert budget < 30
        return
    assert words(view.text) <= budget
    whole = base_context(sample, TASK, str, budget=10_000, count=words)
    assert (view == whole) == (words(whole.text) <= budget)
    assert view.text.count("Visit ") == len(sizes) - view.dropped_visits
    if view.dropped_visits and not view.dropped_codes:  # one more visit would not have fitted
        more = patient(*sample.history[view.dropped_visits - 1 :])
        assert words(base_context(more, TASK, str, budget=10_000, count=words).text) > budget


def series(steps: int, features=("VITAL/heart rate", "LAB/1", "VITAL/ph")) -> Sample[TimeSeries]:
    values = np.full((steps, len(features)), np.nan, np.float32)
    values[:, 0] = np.arange(steps) + 80.5
    values[-1, 1] = 1234.5
    shape = values.shape
    hours = np.arange(1, steps + 1, dtype=np.float32) * 24
    shown = TimeSeries(features, hours, values, np.zeros(shape, np.int64), np.ones(shape, bool))
    return Sample("s", 1, 1, START, shown, 0)


def test_time_series():
    view = time_series(series(3), TASK, lambda c: c.split("/")[1], budget=500, count=words)
    assert "Number of measurements: 3\nHours since admission: [24, 48, 72]" in view.text
    assert "the last value measured by each time, NaN where there is none." in view.text  # values are carried forward
    assert "heart rate (unit: beats/min, usual range: 60 to 100): [80.5, 81.5, 82.5]" in view.text
    assert "\n1: [NaN, NaN, 1234]" in view.text or "\n1: [NaN, NaN, 1235]" in view.text
    assert "ph" not in view.text.split("Hours")[1] and view.text.endswith("Answer:")  # never measured
    shot = time_series(series(3), TASK, str, budget=500, count=words, examples=[(series(1), "yes")])
    assert "Example 1:\nNumber of measurements: 1" in shot.text and "Answer: yes\n\nPatient:\n" in shot.text


@given(st.integers(1, 30), st.integers(40, 160))
def test_time_series_keep_to_the_budget(steps, budget):
    try:
        view = time_series(series(steps), TASK, str, budget=budget, count=words)
    except BadInput:
        assert budget < 60
        return
    assert words(view.text) <= budget and f"measurements: {steps - view.dropped_steps}\n" in view.text
    assert f"{steps * 24}]" in view.text  # the newest is there
    if view.dropped_steps:
        kept = steps - view.dropped_steps
        line = ", ".join(f"{24 * (i + 1)}" for i in range(view.dropped_steps - 1, steps))
        assert f"[{line}]" not in view.text and kept >= 1


def test_rows_of_events():
    rows = [
        (1, None, "GENDER/F", None),
        (1, 1, "LAB/50912", START, START, 1.25, None),
        (1, 1, "LAB/1", START + HOUR, START, None, "NEG"),
        (1, 1, "ICD10CM/I509", START + HOUR),
        (1, 1, "Allergy/nuts", START + HOUR),
    ]
    cohort = small_cohort([], rows, unit=[None, "mg/dL", None, None, None])
    assert rows_of(cohort.events, lambda c: c.split("/")[1]) == [
        "[static] demographic - F",
        "[2150-01-01 12:00:00] measurement - 50912 (value: 1.25 mg/dL)",
        "[2150-01-01 13:00:00] measurement - 1 (value: NEG)",
        "[2150-01-01 13:00:00] condition - I509",
        "[2150-01-01 13:00:00] allergy - nuts",
    ]


def test_budgets_that_are_too_small():
    with pytest.raises(BadInput, match="one time step"):
        time_series(series(3), TASK, str, budget=9, count=words)
    with pytest.raises(BadInput, match="raise the budget"):
        base_context(patient(visit(0, "ICD10CM/x")), TASK, str, budget=9, count=words)
    with pytest.raises(BadInput, match="cannot overlap"):
        chunks(["a"], size=5, overlap=5)


@given(st.integers(0, 40), st.integers(1, 9), st.integers(0, 8))
def test_chunks(count, size, overlap):
    if overlap >= size:
        return
    rows = [str(i) for i in range(count)]
    parts = [part.split("\n") for part in chunks(rows, size, overlap)]
    assert [r for i, part in enumerate(parts) for r in (part if i == 0 else part[overlap:])] == rows
    assert all(len(part) == size for part in parts[:-1])
    assert all(a[len(a) - overlap :] == b[:overlap] for a, b in pairwise(parts))


def test_a_patient_of_the_demo(mimic4_cohort):
    names = mimic4_cohort.names()
    sample = max(ehrshot_samples(mimic4_cohort, "guo_los")[1], key=lambda s: s.history.height)
    shown = rows_of(sample.history, names.__getitem__)
    assert len(shown) == sample.history.height
    assert any("measurement - Creatinine (value:" in row for row in shown) and any("drug - " in row for row in shown)
