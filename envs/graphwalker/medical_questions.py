"""Medical questions as GraphWalker's cases (Appendix M): other questions are chosen and shown with their answers.

python launch/evaluate.py system=graphwalker task=medqa data=medqa data.root=PATH/questions.jsonl (or a folder of train,
dev and test files; MedQA's rows, MIRAGE's, MMLU's, MedMCQA's or PubMedQA's) env.history_tokens=1000

Questions stand where patients stand elsewhere, their text embeddings where EHR embeddings stand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from ghar.data.tasks.question_files import ChoiceQuestion
from ghar.data.tasks.samples import TextSample
from ghar.envs.graphwalker.encoders.embeddings import embed_texts
from ghar.envs.graphwalker.pool import EncodedCases, dense, everyone
from ghar.envs.graphwalker.selectors.prompt import Prompt, question_head
from ghar.envs.graphwalker.selectors.protocol import Patient
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.graphwalker.text_metrics import text_scores
from ghar.envs.graphwalker.visits import WITHOUT_SERIES, no_looks, text_vectors
from ghar.envs.questions import with_last_words
from ghar.envs.records import Records
from ghar.envs.system import Reader


def exams_material(records: Records, settings: Settings) -> EncodedCases[TextSample[ChoiceQuestion]]:
    """Read, split and encode the questions."""
    config, task, splits = records.config, records.texts.task, records.texts.splits
    model, exams = dense(config.retriever.kind), tuple(everyone(splits))
    vectors = embed_texts([exam.text.shown() for exam in exams], model)
    embeddings = text_vectors(tuple(exam.sample_id for exam in exams), vectors)
    return EncodedCases(
        settings, config.seed, task, question_head(task), splits, embeddings, embeddings, model,
        partial(_piece, config.env.history_tokens), _render_exam, no_looks, selectors=WITHOUT_SERIES, generated=False,
        credentialed=records.provenance().credentialed,
    )  # fmt: skip


def _piece(budget: int, prompt: Prompt, reader: Reader, exam: TextSample[ChoiceQuestion]) -> Patient:
    """The question within env.history_tokens, but for its last word, and within the room that the model's context
    leaves it."""
    words, question = exam.text.text.split(), with_last_words(exam.text, budget, reader.count)
    question = question if question.text else replace(question, text=words[-1])
    patient = prompt.question(question, exam.subject_id)
    return replace(patient, dropped=patient.dropped + len(words) - len(question.text.split()))


def _render_exam(exam: TextSample[ChoiceQuestion]) -> str:
    return exam.text.shown()


def answer_scores(
    questions: Sequence[ChoiceQuestion], probabilities: Sequence[Sequence[float] | None], draw: Mapping[str, Any]
) -> dict[str, list[float]]:
    """{measure: [value, mean, deviation]} of the words of the most probable option against the right one's."""
    given = [None if p is None else q.options[int(np.argmax(p))] for q, p in zip(questions, probabilities, strict=True)]
    right = [question.options[question.answer] for question in questions]
    return {name: value.as_list() for name, value in text_scores(given, right, **draw).items()}
