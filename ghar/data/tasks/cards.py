"""What EHR-RAG tells a model about a task: the fields of Table 5 of the paper, in our words, for binary and multiclass.

`Task` (ghar/data/cohort.py) has the question and the labels; a card adds how they are asked for. Answers are label
numbers. `positive` are the labels that the factual path argues for, 0 is the one of the counterfactual path.

EHRSHOT's four are the paper's; the others are ours, for the tasks that show visits. Their question depends on the
source (hospital or ICU) and on the window, so `card_of` takes it from the task.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from ghar.data.cohort import Task
from ghar.data.tasks.ehrshot import TASKS


@dataclass(frozen=True)
class TaskCard:
    """title, category: how prompts name the task. description: the clinical question, which is also the query for
    indicators. factual, counterfactual: queries of the two paths (q+ and q- of Section 3.4). meanings: what each label
    number stands for. advice: instructions of this task alone, may be empty."""

    title: str
    category: str
    description: str
    factual: str
    counterfactual: str
    meanings: tuple[str, ...]
    advice: str

    @property
    def answers(self) -> tuple[str, ...]:
        """What a reply names a label by: its number."""
        return tuple(str(i) for i in range(len(self.meanings)))

    @property
    def numbers(self) -> str:
        """The label numbers, "0, 1"."""
        return ", ".join(self.answers)

    @property
    def positive(self) -> str:
        """The label numbers that the factual path argues for: "1", or "1, 2 or 3"."""
        most = len(self.meanings) - 1
        return "1" if most == 1 else ", ".join(str(i) for i in range(1, most)) + f" or {most}"

    @property
    def definition(self) -> str:
        """Every label number and its meaning."""
        return "; ".join(f"{i} = {meaning}" for i, meaning in enumerate(self.meanings))

    @property
    def kind(self) -> str:
        """The type of the labels."""
        return "binary" if len(self.meanings) == 2 else f"{len(self.meanings)}-class"


CARDS: dict[str, TaskCard] = {
    "guo_los": TaskCard(
        "Long hospital stay",
        "Operational outcomes",
        "Will the stay that has just begun last seven days or longer?",
        "findings, treatments and events that go with a prolonged stay in hospital",
        "findings, treatments and events that go with a short stay in hospital",
        ("shorter than 7 days", "7 days or longer"),
        "",
    ),
    "guo_readmission": TaskCard(
        "Readmission within 30 days",
        "Operational outcomes",
        "Will the patient be admitted to hospital again within 30 days of this discharge?",
        "findings, treatments and events that go with an early readmission to hospital",
        "findings, treatments and events that go with staying out of hospital",
        ("no readmission", "readmission"),
        "Early readmission is rare. Answer 0 unless strong evidence about this very patient speaks for 1; general risk "
        "factors do not suffice.",
    ),
    "new_acutemi": TaskCard(
        "New acute myocardial infarction",
        "Assignment of new diagnoses",
        "Will the patient be diagnosed with a first acute myocardial infarction within a year of this discharge?",
        "risk factors and events that precede an acute myocardial infarction",
        "findings and events that speak against an acute myocardial infarction",
        ("no diagnosis", "diagnosis"),
        "Do not miss a positive: lean towards 1 where any sound evidence about this patient points to infarction, also "
        "when you are unsure.",
    ),
    "lab_anemia": TaskCard(
        "Severity of anaemia",
        "Anticipating laboratory results",
        "How severe will the anaemia be that the next haemoglobin result shows?",
        "findings, treatments and events that tell how severe an anaemia is",
        "findings and events that speak against any anaemia",
        ("none (120 g/L or more)", "mild (110 to below 120 g/L)", "moderate (70 to below 110 g/L)",
         "severe (below 70 g/L)"),
        "When unsure prefer mild or moderate (1 or 2). Choose 0 only on strong evidence that there is no anaemia, and "
        "3 only on clear evidence of a severe one.",
    ),
    "los": TaskCard(
        "Length of stay",
        "Operational outcomes",
        "How many days will this stay last?",
        "findings, treatments and events that keep a patient in for many days",
        "findings, treatments and events of a stay that is over within a day",
        ("less than 1 day", "1 day", *(f"{days} days" for days in range(2, 8)), "8 to 14 days", "more than 14 days"),
        "Choose by whole days that have passed. Most stays last a few days: choose 8 or 9 only where severe illness, a "
        "major operation or a complication speaks for it.",
    ),
    "read": TaskCard(
        "Early readmission",
        "Operational outcomes",
        "Will the patient come back soon after this stay?",
        "findings, treatments and events that go with an early return after a stay",
        "findings, treatments and events of a patient who recovers and stays away",
        ("no early return", "early return"),
        "Early returns are the exception. Look for what is unstable or unfinished in this very patient before you "
        "answer 1.",
    ),
    "dec": TaskCard(
        "Death within 24 hours",
        "Deterioration",
        "Will the patient die in this stay within the next 24 hours?",
        "findings, treatments and events of a patient who is dying: failing organs, life support, end-of-life care",
        "findings, treatments and events of a patient who is stable or recovering",
        ("survives the next 24 hours", "dies within the next 24 hours"),
        "Death within a day is rare. Answer 1 only where the record shows that life is in immediate danger.",
    ),
    "los_24h": TaskCard(
        "Length of a stay after its first day",
        "Operational outcomes",
        "How many days will this stay last in all?",
        "findings, treatments and events that keep a patient in for many days",
        "findings, treatments and events of a patient who can leave after another day",
        ("1 day", *(f"{days} days" for days in range(2, 8)), "8 to 14 days", "more than 14 days"),
        "Count whole days from the beginning of the stay, of which one has passed. Choose 7 or 8 only where severe "
        "illness, a major operation or a complication speaks for it.",
    ),
    "mortality_24h": TaskCard(
        "Death in this stay",
        "Mortality",
        "Will the patient die before this stay ends?",
        "organ failure, shock, life support and grave illness on the first day",
        "findings and treatments of a patient who is stable or recovering on the first day",
        ("leaves alive", "dies in this stay"),
        "Most patients leave alive. Answer 1 only where the first day shows an immediate danger to life.",
    ),
    "kare_mortality": TaskCard(
        "Death in the next visit",
        "Mortality",
        "Will the patient die in the next hospital visit?",
        "grave, advancing or untreatable illness, and treatment that sustains life",
        "findings and treatments of illness that is mild, controlled or healing",
        ("survives the next visit", "dies in the next visit"),
        "Most patients survive their next visit. Answer 1 only where this patient's own record shows extreme risk.",
    ),
    "kare_readmission": TaskCard(
        "Readmission soon after the discharge",
        "Operational outcomes",
        "Will the patient be admitted to the hospital again soon after this visit?",
        "illness that flares up, complications to come and treatment that needs watching after a discharge",
        "illness that is settled and treatment that needs no further visit",
        ("no early readmission", "early readmission"),
        "Weigh what speaks for a return and what against it in this very patient; neither answer is the safe one.",
    ),
}  # fmt: skip


def card_of(task: Task) -> TaskCard:
    """The card of a task by its name, or one made from its question and labels where it has none of its own.

    A card of another number of labels than the task's, as a label file of the same name may have, is not used. Labels
    are numbered from 0: where the task's own are numbers, and others, its question ("1 to 7 for that many whole days")
    would name other answers than the card, which keeps its own.
    """
    card = CARDS.get(task.name.replace("-", "_"))
    if card is None or len(card.meanings) != len(task.labels):
        return _made(task)
    numbers = any(label.isdigit() for label in task.labels)
    contradicts = numbers and task.labels != tuple(map(str, range(len(task.labels))))
    return card if task.name in TASKS or contradicts else replace(card, description=task.question)


def _made(task: Task) -> TaskCard:
    """A card for any labels: the last ones are argued for, the first one against."""
    title = task.name.removeprefix("labels-").replace("_", " ").replace("-", " ").strip()
    first, others = task.labels[0], task.labels[1:] or task.labels
    return TaskCard(
        title[:1].upper() + title[1:],
        "Clinical prediction",
        task.question,
        f"findings, treatments and events that speak for {_one_of(others)}: {task.question}",
        f"findings, treatments and events that speak for {_one_of((first,))}: {task.question}",
        task.labels,
        "",
    )


def _one_of(labels: tuple[str, ...]) -> str:
    """The labels as an answer, or as the choice between several."""
    *most, last = (f'"{label}"' for label in labels)
    return f"the answer {', '.join(most)} or {last}" if most else f"the answer {last}"
