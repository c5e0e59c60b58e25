"""task=summary: clinical texts to be summarised as samples, in the official parts of their set or split by patient."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from ghar.config import TaskConfig
from ghar.data.cohort import Task
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits, split_by_patient
from ghar.data.tasks.summary_files import SummarisedText, read_text_parts, read_texts
from ghar.data.tasks.text_files import TextSet

SUMMARY, ASKED = "summary", "Summarise the text as a clinician would."
WRITTEN, LABEL = "written", 0  # the one label: a summary has no classes


def read_summary_set(root: Path, cut: TaskConfig) -> TextSet[TextSample[SummarisedText]]:
    """Read the official parts of a folder, or split a file's texts by patient. BadInput as the readers raise it."""
    numbers = count()

    def samples(texts: list[SummarisedText]) -> tuple[TextSample[SummarisedText], ...]:
        lines = [(one, next(numbers)) for one in texts]
        return tuple(
            TextSample(one.text_id, line if one.patient is None else one.patient, one, LABEL) for one, line in lines
        )

    if root.is_dir():
        parts = {name: samples(texts) for name, texts in read_text_parts(root).items()}
        splits = Splits(parts["train"], parts["valid"], parts["test"])
    else:
        splits = split_by_patient(samples(read_texts(root)), cut.split, cut.split_seed)
    return TextSet(Task(SUMMARY, ASKED, (WRITTEN,)), splits)
