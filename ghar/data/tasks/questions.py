"""task=medqa: questions with a choice of answers as samples, in the official parts of their set or split here.

No patient stands behind a question: it is a sample of its own, and its number stands where a patient's does.
"""

from __future__ import annotations

from itertools import count
from pathlib import Path

from ghar.config import TaskConfig
from ghar.data.cohort import Task
from ghar.data.tasks.question_files import LETTERS, ChoiceQuestion, read_parts, read_questions
from ghar.data.tasks.samples import TextSample
from ghar.data.tasks.splits import Splits, split_stratified
from ghar.data.tasks.text_files import TextSet
from ghar.errors import BadInput

MEDQA, ASKED = "medqa", "Which answer is right?"


def read_question_set(root: Path, cut: TaskConfig) -> TextSet[TextSample[ChoiceQuestion]]:
    """Read the official parts of a folder, or split a file's questions within each answer.

    The task's labels are the letters of the options. BadInput for questions of different numbers of options.
    """
    parts = read_parts(root) if root.is_dir() else {"all": read_questions(root)}
    counts = {len(question.options) for part in parts.values() for question in part}
    if len(counts) != 1:
        raise BadInput(f"{root} has questions of {sorted(counts)} options: give questions of one number.")
    numbers = count()
    exams = {
        name: tuple(TextSample(one.question_id, next(numbers), one, one.answer) for one in part)
        for name, part in parts.items()
    }
    if "all" in exams:
        splits = split_stratified(exams["all"], cut.split, cut.split_seed)
    else:
        splits = Splits(exams["train"], exams["valid"], exams["test"])
    return TextSet(Task(MEDQA, ASKED, tuple(LETTERS[: counts.pop()])), splits)
