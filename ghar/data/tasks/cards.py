"""What EHR-RAG tells a model about a task: the fields of Table 5 of the paper, in our words, for binary and multiclass.

`Task` (ghar/data/cohort.py) has the question and the labels; a card adds how they are asked for. Answers are label
numbers. `positive` are the labels that the factual path argues for, 0 is the one of the counterfactual path.
"""

from __future__ import annotations

from dataclasses import dataclass

from ghar.data.tasks.ehrshot import EhrshotTask


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
    def numbers(self) -> str:
        """The label numbers, "0, 1"."""
        return ", ".join(str(i) for i in range(len(self.meanings)))

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


CARDS: dict[EhrshotTask, TaskCard] = {
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
}  # fmt: skip
