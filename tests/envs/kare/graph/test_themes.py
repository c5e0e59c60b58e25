"""Themes: each task has one, and none is without terms."""

from __future__ import annotations

import pytest

from ghar.data.tasks.visits import VISIT_TASKS
from ghar.envs.kare.graph.considerations import considerations_of
from ghar.envs.kare.graph.themes import CLINICAL_COURSE, LENGTH_OF_STAY, MORTALITY, READMISSION, Theme, theme_of
from ghar.errors import BadInput

THEMES = (MORTALITY, READMISSION, LENGTH_OF_STAY, CLINICAL_COURSE)


def test_tasks_have_their_theme_by_either_name() -> None:
    assert theme_of("kare-mortality") is theme_of("kare_mortality") is theme_of("dec") is MORTALITY
    assert theme_of("kare-readmission") is theme_of("read") is READMISSION
    assert theme_of("los") is theme_of("guo_los") is LENGTH_OF_STAY and theme_of("guo_readmission") is READMISSION
    assert theme_of("new_acutemi") is theme_of("lab_anemia") is CLINICAL_COURSE
    with pytest.raises(BadInput, match="'bleeding' has no theme"):
        theme_of("bleeding")
    for task in ("medqa", "summary"):
        assert theme_of(task) is None and len(considerations_of(task)) >= 3


@pytest.mark.parametrize("task", VISIT_TASKS)
def test_every_task_on_visits_has_a_theme_and_considerations(task: str) -> None:
    assert theme_of(task) in THEMES and len(considerations_of(task)) >= 3


@pytest.mark.parametrize("terms", [(), ("sepsis", " ")])
def test_a_theme_without_terms_is_refused(terms: tuple[str, ...]) -> None:
    with pytest.raises(BadInput, match="'mortality' has no terms"):
        Theme("mortality", terms)


def test_a_theme_without_a_name_is_refused() -> None:
    with pytest.raises(BadInput, match="has no name"):
        Theme(" ", ("sepsis",))


def test_terms_are_different_phrases() -> None:
    assert all(len(set(theme.terms)) == len(theme.terms) for theme in THEMES)
