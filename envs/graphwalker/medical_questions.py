"""Medical questions as GraphWalker's cases (Appendix M): other questions are chosen and shown with their answers.

python launch/evaluate.py system=graphwalker task=medqa data=medqa data.root=PATH/questions.jsonl (or a folder of train,
dev and test files; MedQA's rows, MIRAGE's, MMLU's, MedMCQA's or PubMedQA's)

Questions stand where patients stand elsewhere, their text embeddings where EHR embeddings stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from ghar.data.cohort import Task
from ghar.data.readers.source import origin
from ghar.data.tasks.splits import Splits, split_stratified
from ghar.envs.graphwalker.encoders.embeddings import embed_texts
from ghar.envs.graphwalker.pool import EncodedCases, dense, everyone
from ghar.envs.graphwalker.question_files import LETTERS, ChoiceQuestion, read_parts, read_questions
from ghar.envs.graphwalker.selectors.prompt import Prompt, question_head
from ghar.envs.graphwalker.selectors.protocol import Patient
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.graphwalker.text_metrics import text_scores
from ghar.envs.graphwalker.visits import WITHOUT_SERIES, no_looks, text_vectors
from ghar.envs.records import Records
from ghar.envs.system import Reader
from ghar.errors import BadInput

MEDQA, ASKED = "medqa", "Which answer is right?"


@dataclass(frozen=True)
class MedicalQuestion:
    """A question as a sample of its own patient. subject_id: its line among the questions."""

    question: ChoiceQuestion
    subject_id: int

    @property
    def sample_id(self) -> str:
        return self.question.question_id

    @property
    def label(self) -> int:
        return self.question.answer


def exams_material(records: Records, settings: Settings) -> EncodedCases[MedicalQuestion]:
    """Read, split and encode the questions."""
    config, (task, splits) = records.config, read_exams(records)
    model, exams = dense(config.retriever.kind), tuple(everyone(splits))
    vectors = embed_texts([exam.question.shown() for exam in exams], model)
    found = text_vectors(tuple(exam.sample_id for exam in exams), vectors)
    return EncodedCases(
        settings, config.seed, task, question_head(task), splits, found, found, model, _piece, _shown, no_looks,
        selectors=WITHOUT_SERIES, generated=False, credentialed=records.credentialed(origin(config.data)),
    )  # fmt: skip


def read_exams(records: Records) -> tuple[Task, Splits[MedicalQuestion]]:
    """Task and questions, in the official parts of a folder, else split within each answer.

    BadInput for questions of different numbers of options.
    """
    root, cut = records.config.data.root, records.config.task
    assert root is not None  # ghar.configure asks for it
    parts = read_parts(Path(root)) if Path(root).is_dir() else {"all": read_questions(Path(root))}
    questions = [question for part in parts.values() for question in part]
    counts = {len(question.options) for question in questions}
    if len(counts) != 1:
        raise BadInput(f"{root} has questions of {sorted(counts)} options: give questions of one number.")
    numbers = count()
    exams = {name: tuple(MedicalQuestion(question, next(numbers)) for question in part) for name, part in parts.items()}
    if "all" in exams:
        splits = split_stratified(exams["all"], cut.split, cut.split_seed)
    else:
        splits = Splits(exams["train"], exams["valid"], exams["test"])
    return Task(MEDQA, ASKED, tuple(LETTERS[: counts.pop()])), records.limited(splits)


def _piece(prompt: Prompt, reader: Reader, exam: MedicalQuestion) -> Patient:
    return prompt.question(exam.question, exam.subject_id)


def _shown(exam: MedicalQuestion) -> str:
    return exam.question.shown()


def answer_scores(
    questions: Sequence[ChoiceQuestion], found: Sequence[Sequence[float] | None], draw: Mapping[str, Any]
) -> dict[str, list[float]]:
    """{measure: [value, mean, deviation]} of the words of the most probable option against the right one's."""
    given = [None if p is None else q.options[int(np.argmax(p))] for q, p in zip(questions, found, strict=True)]
    right = [question.options[question.answer] for question in questions]
    return {name: value.as_list() for name, value in text_scores(given, right, **draw).items()}
