"""KARE's base context: the task, every visit with its conditions, procedures and drugs, and similar patients.

The order of parts and the three lists a visit are the paper's (kare.txt, Section 3.2.1 and Figure 11); visits count
from 0. The wording is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ghar.data.cohort import Sample, Task, Visit
from ghar.data.views.visits import TextView, fitted

KINDS = (("Conditions", "diagnoses"), ("Procedures", "procedures"), ("Drugs", "medications"))


def base_context(
    sample: Sample,
    task: Task,
    name_of: Callable[[str], str],
    *,
    budget: int,
    count: Callable[[str], int],
    similar: Sequence[tuple[Sample, str]] = (),
) -> TextView:
    """The context in at most `budget` tokens as `count` counts them; the oldest visits of the patient go first.

    similar: patients of the training set with their labels as text, in the order to show them; they are never cut, so a
    budget that does not hold them and a visit without codes is a BadInput (as in
    `ghar.data.views.visits.visit_list`).
    """
    visits = sample.history
    head = f"Task: {task.question}\nPossible answers: {', '.join(task.labels)}\n\nPatient:\n"
    tail = "".join(
        f"\n\nSimilar patient {i} (answer: {label}):\n{_lines(other.history, 0, name_of)}"
        for i, (other, label) in enumerate(similar, start=1)
    )

    def text(kept: Sequence[Visit]) -> str:
        return head + _lines(kept, len(visits) - len(kept), name_of) + tail

    return fitted(visits, text, "kare", budget, count)


def _lines(visits: Sequence[Visit], first: int, name_of: Callable[[str], str]) -> str:
    """Visits from number `first` on, a line a list."""
    lines = []
    for number, visit in enumerate(visits, start=first):
        lines.append(f"Visit {number}:")
        for title, kind in KINDS:
            names = dict.fromkeys(name_of(code) for code in getattr(visit, kind))  # several codes may share a name
            lines.append(f"  {title}: {'; '.join(names) or 'none'}")
    return "\n".join(lines) or "no visit on record"
