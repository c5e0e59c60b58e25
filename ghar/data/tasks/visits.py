"""The task that task=... names, of those that show visits of codes: GHAR's three and KARE's two."""

from __future__ import annotations

from ghar.config import Task as TaskConfig
from ghar.data.cohort import Cohort, Sample, Task
from ghar.data.tasks.next_visit import kare_samples
from ghar.data.tasks.stays import Leakage, make_samples
from ghar.errors import BadInput


def visit_samples(cohort: Cohort, task: TaskConfig, leakage: Leakage) -> tuple[Task, list[Sample]]:
    """The task and its samples as configured. Raises BadInput as `make_samples` and `kare_samples` do."""
    days, legacy = task.window_days, task.legacy_order
    if task.name == "kare_mortality":
        return kare_samples(cohort, "mortality", leakage=leakage, legacy_order=legacy)
    if task.name == "kare_readmission":
        # PyHealth, whose order legacy_order repeats, counts from admission to admission.
        window = "released" if legacy else "paper"
        return kare_samples(
            cohort, "readmission", leakage=leakage, window=window, window_days=days, legacy_order=legacy
        )
    if task.name not in ("los", "read", "dec"):
        raise BadInput(f"task={task.name} shows no visits of codes, which this system predicts from: choose another.")
    return make_samples(cohort, task.name, leakage=leakage, anchor=task.anchor, window_days=days, legacy_order=legacy)
