"""Themes: what a task's summaries and its theme relevance look for (τ and T_τ of Eq. 6, KARE).

The term lists are ours, in the spirit of the paper's two examples ("end-stage", "life-threatening" for mortality).
"""

from __future__ import annotations

from dataclasses import dataclass

from ghar.data.tasks.question_files import MEDQA
from ghar.data.tasks.summary_files import SUMMARY
from ghar.errors import BadInput


@dataclass(frozen=True)
class Theme:
    """`name` reads well after "relevant to"; `terms` are short phrases that stand for it. Both must not be empty."""

    name: str
    terms: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise BadInput(f"A theme with the terms {', '.join(self.terms) or '(none)'} has no name: give it one.")
        if not self.terms or not all(term.strip() for term in self.terms):
            raise BadInput(f"The theme {self.name!r} has no terms, or an empty one: name what it is about.")


MORTALITY = Theme(
    "mortality prediction",
    (
        "end-stage disease",
        "life-threatening",
        "multiple organ failure",
        "septic shock",
        "respiratory failure",
        "cardiac arrest",
        "metastatic cancer",
        "poor prognosis",
        "fatal outcome",
        "mechanical ventilation",
        "vasopressor support",
        "comfort care",
    ),
)

READMISSION = Theme(
    "readmission prediction",
    (
        "chronic disease",
        "recurrence",
        "acute exacerbation",
        "relapse",
        "complication after discharge",
        "postoperative infection",
        "poor adherence to treatment",
        "long-term medication",
        "unstable condition",
        "follow-up care",
        "repeated hospital stays",
        "frail patient",
    ),
)

LENGTH_OF_STAY = Theme(
    "length of stay prediction",
    (
        "prolonged hospital stay",
        "slow recovery",
        "intensive care",
        "major surgery",
        "hospital-acquired infection",
        "complication of treatment",
        "several severe conditions",
        "rehabilitation need",
        "parenteral nutrition",
        "intravenous antibiotics",
        "short uncomplicated stay",
        "elective procedure",
    ),
)

# For tasks about one diagnosis or result: whatever bears on how a patient's illness goes on.
CLINICAL_COURSE = Theme(
    "prediction of the clinical course",
    (
        "risk factor",
        "early sign",
        "cause of the disease",
        "disease progression",
        "new diagnosis",
        "abnormal laboratory result",
        "chronic organ disease",
        "acute event",
        "adverse drug effect",
        "protective treatment",
        "response to treatment",
        "blood loss",
    ),
)

_OF_TASK = {
    "dec": MORTALITY,
    "kare-mortality": MORTALITY,
    "mortality-24h": MORTALITY,
    "read": READMISSION,
    "kare-readmission": READMISSION,
    "guo-readmission": READMISSION,
    "los": LENGTH_OF_STAY,
    "guo-los": LENGTH_OF_STAY,
    "los-24h": LENGTH_OF_STAY,
    "new-acutemi": CLINICAL_COURSE,
    "lab-anemia": CLINICAL_COURSE,
}


def theme_of(task: str) -> Theme | None:
    """The theme of a task, by `Task.name` or by its name in conf/task. BadInput for a task that is not listed.

    Tasks of label files ("labels-...") may ask anything, and have the widest theme. Examination questions and
    clinical texts have none: each is about something else.
    """
    if task in (MEDQA, SUMMARY):
        return None
    named = task.replace("_", "-")
    theme = CLINICAL_COURSE if named.startswith("labels") else _OF_TASK.get(named)
    if theme is None:
        raise BadInput(f"The task {task!r} has no theme: choose one of {', '.join(sorted(_OF_TASK))}.")
    return theme
