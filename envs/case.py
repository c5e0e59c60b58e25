"""A sample as an episode reads it: one `Case` for all systems, with what each of them reads besides the text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar

from ghar.data.cohort import Sample, Task
from ghar.data.views.visits import visit_list

NOT_SHOWN = ("LAB/", "ICU", "MEDS_")  # codes that no list of visits shows


TEXT_ALONE: Any = None  # where a system reads the text alone
R = TypeVar("R")


@dataclass(frozen=True)
class Case(Generic[R]):
    """One sample, ready to be asked about.

    text: the record within the token budget. topics: what sub-queries can be about, as "disease <name>" and
    "drug <name>" of the newest visit. label: the truth; no policy sees it. reads: what the system at hand reads of the
    sample besides, None where that is all.
    """

    sample_id: str
    subject_id: int
    visit_id: int
    text: str
    topics: tuple[str, ...]
    task: Task
    label: int
    reads: R = TEXT_ALONE
    credentialed: bool = field(default=True, kw_only=True, compare=False, repr=False)


def build_cases(
    samples: Sequence[Sample],
    task: Task,
    names: Mapping[str, str],
    *,
    style: Literal["full", "compact"],
    budget: int,
    count: Callable[[str], int],
) -> list[Case]:
    """Cases of `samples`; `names` gives the text of a code, `count` the tokens of a text."""

    def name_of(code: str) -> str:
        return names.get(code, code)

    cases = []
    for sample in samples:
        view = visit_list(sample, name_of, style=style, budget=budget, count=count)
        topics = topics_of(sample, name_of)
        about = sample.sample_id, sample.subject_id, sample.visit_id
        cases.append(Case(*about, view.text, topics, task, sample.label, credentialed=sample.credentialed))
    return cases


def topics_of(sample: Sample, name_of: Callable[[str], str]) -> tuple[str, ...]:
    """What the newest visit is about, as "disease <name>" and "drug <name>"."""
    diseases = [f"disease {name_of(code)}" for visit in sample.history[-1:] for code in visit.diagnoses]
    drugs = [f"drug {name_of(code)}" for visit in sample.history[-1:] for code in visit.medications]
    return tuple(dict.fromkeys(diseases + drugs))
