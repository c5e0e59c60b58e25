"""What to weigh in a task: told to an expert and in zero-shot and few-shot prompts, never to a fine-tuned model.

The paper's "Key Considerations" (Figure 15 of KARE) for mortality and readmission, in our words; those for the length
of stay, for single diagnoses and results, for examination questions and for clinical texts are ours.
"""

from __future__ import annotations

from ghar.data.tasks.summary_files import SUMMARY
from ghar.envs.kare.graph.themes import CLINICAL_COURSE, LENGTH_OF_STAY, MORTALITY, READMISSION, theme_of

QUESTIONS = (
    "Question: what is asked for (a cause, a test, a treatment), and which findings of the text decide it.",
    "Options: which of them the findings contradict, and which one explains all of them.",
    "Medical knowledge: what it states of the concepts of the question and of each option, if anything.",
)
TEXTS = (
    "Findings: complaints, examination, results and diagnoses that decide what is done, with their numbers and sides.",
    "Plan: what was given, changed, ordered or arranged, each with the problem that it is for.",
    "Form: the order and the headings in which clinicians write such a summary, without small talk and repetitions.",
)
_OF_THEME = {
    MORTALITY: (
        "Conditions: how grave they are (advanced cancer, failing organs, sepsis), how many there are at once, and "
        "whether they are acute or chronic.",
        "Procedures: how invasive the latest ones were, whether they were emergencies, and how often life had to be "
        "sustained (ventilation, dialysis).",
        "Medications: drugs of high risk, long lists of them, and drugs that are given at the end of life.",
        "Look at how these act together, and expect death only where the risk is extreme.",
    ),
    READMISSION: (
        "Conditions: chronic ones that flare up easily, ones that need close watching, and recent acute ones that may "
        "have complications.",
        "Procedures: recent major operations, ones that need long aftercare, and ones that did not fully succeed.",
        "Medications: new regimens that may need adjusting, narrow margins between effect and harm, and schedules that "
        "are hard to keep.",
        "Tell apart those who are likely to come back and those who are not; neither is the safe answer.",
    ),
    LENGTH_OF_STAY: (
        "Conditions: how grave and how many they are, and which of them keep a patient in bed.",
        "Procedures: major operations, intensive care, and what has to heal before a discharge.",
        "Medications: treatment that is given in hospital only.",
    ),
    CLINICAL_COURSE: (
        "Conditions: what causes, precedes or goes with the outcome that is asked for, and how long it has been known.",
        "Procedures: what was done about it, and what may bring it about (operations, blood loss, contrast).",
        "Medications: drugs that treat or prevent it, and drugs that have it as a side effect.",
        "Tell apart what makes the outcome likely in anybody and what shows it coming in this very patient.",
    ),
}


def considerations_of(task: str) -> tuple[str, ...]:
    """The points for a task, by `Task.name` or its name in conf/task. BadInput as `theme_of` raises it."""
    theme = theme_of(task)
    if theme is None:
        return TEXTS if task == SUMMARY else QUESTIONS
    return _OF_THEME[theme]
