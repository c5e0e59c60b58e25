"""GraphWalker's time-series prompt: measurement times, then a list of values a feature, with unit and usual range.

The layout is the paper's (graphwalker.txt, Appendix K), the wording ours. Values are carried forward, and NaN before
the first one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

import numpy as np

from ghar.data.cohort import Sample, Task
from ghar.data.readers.vitals import VARIABLES
from ghar.data.tasks.samples import TimeSeries
from ghar.data.views.visits import TextView
from ghar.errors import BadInput

USUAL = {  # of adults at rest, for the reader of a prompt; not used to judge a value
    "VITAL/capillary refill rate": "0",
    "VITAL/diastolic blood pressure": "60 to 80",
    "VITAL/fraction inspired oxygen": "0.21 in room air",
    "VITAL/glasgow coma scale eye opening": "4",
    "VITAL/glasgow coma scale motor response": "6",
    "VITAL/glasgow coma scale total": "15",
    "VITAL/glasgow coma scale verbal response": "5",
    "VITAL/glucose": "70 to 140",
    "VITAL/heart rate": "60 to 100",
    "VITAL/mean blood pressure": "70 to 100",
    "VITAL/oxygen saturation": "95 to 100",
    "VITAL/ph": "7.35 to 7.45",
    "VITAL/respiratory rate": "12 to 20",
    "VITAL/systolic blood pressure": "90 to 120",
    "VITAL/temperature": "36.1 to 37.2",
}
UNITS = {f"VITAL/{name}": variable.unit for name, variable in VARIABLES.items()}


def time_series(
    sample: Sample[TimeSeries],
    task: Task,
    name_of: Callable[[str], str],
    *,
    budget: int,
    count: Callable[[str], int],
    examples: Sequence[tuple[Sample[TimeSeries], str]] = (),
) -> TextView:
    """The prompt in at most `budget` tokens; the oldest steps of the patient go first.

    A feature that was never measured has no list.
    examples: patients with their labels as text, shown before the patient and never cut. Raises BadInput when not even
    the newest step fits.
    """
    parts = [
        f"Example {i}:\n{_table(other, 0, name_of)}\nAnswer: {label}\n\n"
        for i, (other, label) in enumerate(examples, start=1)
    ]
    head = (
        "Below are measurements of one stay. Each feature is a list with the last value measured by each time, "
        f"NaN where there is none.\nTask: {task.question}\nPossible answers: {', '.join(task.labels)}\n\n"
        + "".join(parts)
        + ("Patient:\n" if examples else "")
    )
    steps = len(sample.history.hours)

    def text(dropped: int) -> str:
        return head + _table(sample, dropped, name_of) + "\nAnswer:"

    dropped = bisect_left(range(steps), True, key=lambda n: count(text(n)) <= budget)
    if dropped == steps:
        raise BadInput(f"A budget of {budget} tokens is too small for one time step of the series: raise the budget.")
    return TextView(text(dropped), dropped_steps=dropped)


def _table(sample: Sample[TimeSeries], first: int, name_of: Callable[[str], str]) -> str:
    hours = ", ".join(number(hour) for hour in sample.history.hours[first:])
    lines = [f"Number of measurements: {len(sample.history.hours) - first}", f"Hours since admission: [{hours}]"]
    for i, code in enumerate(sample.history.features):
        if np.isnan(sample.history.values[:, i]).all():
            continue
        facts = (("unit", UNITS.get(code)), ("usual range", USUAL.get(code)))
        about = ", ".join(f"{what}: {value}" for what, value in facts if value)
        values = ", ".join(number(value) for value in sample.history.values[first:, i])
        lines.append(f"{name_of(code)}{f' ({about})' if about else ''}: [{values}]")
    return "\n".join(lines)


def number(value: float) -> str:
    """A value as prompts show it: four digits, NaN for none."""
    return "NaN" if np.isnan(value) else f"{value:.4g}"
