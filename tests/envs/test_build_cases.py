"""From samples to what an episode sees of them."""

from datetime import datetime

import pytest

from ghar.data.cohort import Sample, Task, Visit
from ghar.envs.case import build_cases
from ghar.errors import BadInput

TASK = Task("los", "How long?", ("short", "long"))
NAMES = {"ICD10CM/A": "ague", "ICD10CM/B": "bite", "DRUG/s": "senna"}


def sample(label: int = 1) -> Sample:
    old = Visit(1, datetime(2150, 1, 1), ("ICD10CM/B",), (), ("DRUG/old",))
    new = Visit(2, datetime(2151, 1, 1), ("ICD10CM/A", "ICD10CM/X"), ("ICD10PCS/P",), ("DRUG/s",))
    return Sample("a", 9, 2, datetime(2151, 1, 2), (old, new), label)


def cases(*samples: Sample, budget: int = 100):
    return build_cases(samples, TASK, NAMES, style="compact", budget=budget, count=lambda text: len(text.split()))


def test_topics_are_conditions_and_drugs_of_the_newest_visit_by_name():
    (case,) = cases(sample())
    assert case.topics == ("disease ague", "disease ICD10CM/X", "drug senna")
    assert (case.sample_id, case.visit_id, case.label, case.task) == ("a", 2, 1, TASK)
    assert "ague" in case.text and "bite" in case.text


def test_the_text_does_not_depend_on_the_label():
    assert [c.text for c in cases(sample(0))] == [c.text for c in cases(sample(1))]


def test_the_budget_holds_and_one_that_is_too_small_is_named():
    (case,) = cases(sample(), budget=7)
    assert len(case.text.split()) <= 7 and "bite" not in case.text and "ague" in case.text
    with pytest.raises(BadInput, match="budget"):
        cases(sample(), budget=1)


def test_a_history_without_visits_has_no_topics():
    empty = Sample("b", 9, 2, datetime(2151, 1, 2), (), 0)
    assert cases(empty)[0].topics == ()
