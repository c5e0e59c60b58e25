"""Task cards: every task on visits has one that fits it, any other task gets one made."""

from __future__ import annotations

import pytest

from ghar.data.cohort import Cohort, Task
from ghar.data.tasks.cards import CARDS, card_of
from ghar.data.tasks.ehrshot import TASKS
from ghar.data.tasks.stays import los_task, read_task
from ghar.data.tasks.visits import VISIT_TASKS, visit_samples
from tests.data.test_tasks_visits import task_named


def test_cards_are_keyed_by_the_tasks_names() -> None:
    assert set(CARDS) == set(VISIT_TASKS)


@pytest.mark.parametrize("name", VISIT_TASKS)
def test_every_card_fits_its_task(mimic4_cohort: Cohort, name: str) -> None:
    about, samples = visit_samples(mimic4_cohort, task_named(name), "paper")
    card = card_of(about)
    assert len(card.meanings) == len(about.labels) == len(set(card.meanings))
    assert card.title == CARDS[name].title and max(s.label for s in samples) < len(card.meanings)
    if name in TASKS:
        assert card == CARDS[name]  # the paper's
    elif about.labels[0] == "1":  # answers are numbered from 0, and the question names others
        assert card == CARDS[name] and "1 to 7" in about.question and not any(map(str.isdigit, card.description))
    else:
        assert card.description == about.question


def test_a_card_asks_for_the_windows_days_and_the_kind_of_stay() -> None:
    assert "within 30 days" in card_of(read_task(30)).description
    assert "ICU stay" in card_of(los_task("ICU")).description
    los = card_of(los_task())
    assert los.kind == "10-class" and los.positive == "1, 2, 3, 4, 5, 6, 7, 8 or 9"
    assert los.meanings[0] == "less than 1 day" and los.meanings[8:] == ("8 to 14 days", "more than 14 days")


def test_a_task_without_a_card_gets_one() -> None:
    task = Task("icu-delirium", "Will the patient be delirious tomorrow?", ("no", "yes"))
    card = card_of(task)
    assert (card.title, card.description, card.meanings) == ("Icu delirium", task.question, task.labels)
    assert '"yes"' in card.factual and '"no"' in card.counterfactual and card.numbers == "0, 1"
    grades = card_of(Task("stage", "Which stage?", ("none", "mild", "severe")))
    assert 'the answer "mild" or "severe"' in grades.factual and grades.positive == "1 or 2"


def test_a_card_of_other_labels_is_not_used() -> None:
    task = Task("lab_anemia", "Is there any anaemia?", ("no", "yes"))
    assert card_of(task).meanings == ("no", "yes")
