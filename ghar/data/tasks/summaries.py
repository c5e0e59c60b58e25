"""task=summary: clinical texts to be summarised as samples, in the official parts of their set or split by patient."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path

from ghar.config import TaskConfig
from ghar.data.cohort import Task
from ghar.data.tasks.splits import Splits, split_by_patient
from ghar.data.tasks.summary_files import SummarisedText, read_text_parts, read_texts
from ghar.data.tasks.text_files import TextSet

SUMMARY, ASKED = "summary", "Summarise the text as a clinician would."
WRITTEN = "written"  # the one label: a summary has no classes


@dataclass(frozen=True)
class SummarySample:
    """A text with its reference. subject_id: of the patient that its id names, else its line among the texts."""

    text: SummarisedText
    subject_id: int

    @property
    def sample_id(self) -> str:
        return self.text.text_id

    @property
    def label(self) -> int:
        return 0


def read_summary_set(root: Path, cut: TaskConfig) -> TextSet[SummarySample]:
    """Read the official parts of a folder, or split a file's texts by patient. BadInput as the readers raise it."""
    numbers = count()

    def samples(texts: list[SummarisedText]) -> tuple[SummarySample, ...]:
        lines = [(text, next(numbers)) for text in texts]
        return tuple(SummarySample(text, line if text.patient is None else text.patient) for text, line in lines)

    if root.is_dir():
        parts = {name: samples(texts) for name, texts in read_text_parts(root).items()}
        splits = Splits(parts["train"], parts["valid"], parts["test"])
    else:
        splits = split_by_patient(samples(read_texts(root)), cut.split, cut.split_seed)
    return TextSet(Task(SUMMARY, ASKED, (WRITTEN,)), splits)
