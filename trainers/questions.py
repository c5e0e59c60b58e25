"""Demonstrations for medical questions (GraphWalker, Appendix M): others are chosen and shown with their answers.

python launch/evaluate.py policy=graphwalker task=medqa selector.encoder=text data.root=PATH/questions.jsonl

Questions stand where patients stand elsewhere, their text embeddings where EHR embeddings stand. The answer is the most
probable letter; exact match, BLEU and ROUGE compare the words of the chosen option with those of the right one.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ghar.config import Config, Selector
from ghar.data.cohort import Task
from ghar.data.readers.questions import LETTERS, Question, read_medqa
from ghar.data.tasks.splits import Splits, split_stratified
from ghar.encoders.embeddings import embed_texts
from ghar.errors import BadInput
from ghar.llm.engines import served
from ghar.llm.models import load_backbone
from ghar.metrics.report import conclude
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.selection import write_selection
from ghar.metrics.texts import text_scores
from ghar.selectors.graph import build_graph
from ghar.selectors.prompt import Prompt, make_prompt, question_head
from ghar.selectors.protocol import Effort, Patient, Pool, Query, allowed_for, check_pool
from ghar.selectors.scorer import EngineScorer
from trainers.demonstrations import METHODS, choose
from trainers.graphwalker import predict, selection_cost, summarise, table
from trainers.graphwalker_rows import Probabilities, episode_rows, shown
from trainers.runs.models import use_cores
from trainers.runs.resume import as_yaml

ASKED = "Which answer is right?"


@dataclass(frozen=True)
class Exam:
    """A question as a sample of its own patient. subject_id: its line among the questions."""

    question: Question
    subject_id: int

    @property
    def label(self) -> int:
        return self.question.answer


def evaluate_questions(config: Config, effort: Effort) -> dict[str, Any]:
    """Choose, answer, and write summary.json, selection.json, episodes/ and report.html to run_dir; the summary."""
    use_cores(config.threads)
    began = time.perf_counter()
    task, splits = read_exams(config)
    folder = RunFolder.open(Path(config.run_dir))
    folder.write_config(as_yaml(config))
    head = question_head(task)
    model, tokenizer = load_backbone(config, lambda: [head, *(exam.question.shown() for exam in splits.train)])
    selector = config.selector
    assert selector is not None  # ghar.configure asks for it
    with served(config, model, tokenizer) as engine:
        prompt = make_prompt(task, head, tokenizer, model.config.max_position_embeddings, selector.k)
        pool, queries = make_exam_pool(config, selector, splits, prompt, effort)
        scorer = EngineScorer(engine, prompt, pool.patients)
        chosen = choose(pool, queries, scorer, config.env.in_flight)
        cost = selection_cost(chosen, scorer, time.perf_counter() - began)
        found = predict(chosen, scorer)
    rows = episode_rows(chosen, scorer, found)
    folder.write_episodes(selector.name, rows)
    clinical = answer_scores(config, [exam.question for exam in splits.test], found)
    write_selection(folder, shown(chosen, rows, clinical, cost))
    about = {"generated": False, "credentialed": False, **summarise(config, task, splits, chosen, found)}
    return conclude(folder, {**about, "clinical": clinical, "cost": cost}, partial(table, clinical))


def read_exams(config: Config) -> tuple[Task, Splits[Exam]]:
    """Task and questions, split within each answer. BadInput for questions of different numbers of options."""
    assert config.data.root is not None  # ghar.configure asks for it
    questions = read_medqa(Path(config.data.root))
    counts = {len(question.options) for question in questions}
    if len(counts) != 1:
        raise BadInput(f"{config.data.root} has questions of {sorted(counts)} options: give questions of one number.")
    cut = config.task
    splits = split_stratified([Exam(q, i) for i, q in enumerate(questions)], cut.split, cut.split_seed)
    splits = Splits(splits.train[: cut.max_train], splits.valid[: cut.max_valid], splits.test[: cut.max_test])
    return Task("medqa", ASKED, tuple(LETTERS[: counts.pop()])), splits


def make_exam_pool(
    config: Config, selector: Selector, splits: Splits[Exam], prompt: Prompt, effort: Effort
) -> tuple[Pool, list[Query]]:
    """The training questions, and the test questions. BadInput for a pool too small for k."""

    def patients(exams: Sequence[Exam]) -> tuple[Patient, ...]:
        return tuple(prompt.question(exam.question, exam.subject_id) for exam in exams)

    kind = config.retriever.kind
    encode = partial(embed_texts, model="hashing" if kind in ("tfidf", "bm25") else kind)  # those two make no vectors
    words = encode([exam.question.shown() for exam in splits.train])
    train = patients(splits.train)
    graph = None
    if selector.name == "graphwalker":
        method: Any = METHODS.get(selector.variant, "leiden")
        ids = [patient.sample_id for patient in train]
        graph = build_graph(words, ids, k=selector.k_g, method=method, seed=config.seed)
    about = prompt.task.labels, prompt.task.question
    pool = Pool(train, patients(splits.valid), *about, words, words, encode, graph, selector, effort, config.seed)
    asked = patients(splits.test)
    vectors = encode([exam.question.shown() for exam in splits.test])
    queries = [Query(patient, v, v, allowed_for(patient, train)) for patient, v in zip(asked, vectors, strict=True)]
    for query in queries if selector.name != "zero_shot" else ():
        check_pool(query.allowed, selector.k, query.patient)
    return pool, queries


def answer_scores(config: Config, questions: Sequence[Question], found: Probabilities) -> dict[str, list[float]]:
    """{measure: [value, mean, deviation]} of the words of the most probable option against the right one's."""
    given = [None if p is None else q.options[int(np.argmax(p))] for q, p in zip(questions, found, strict=True)]
    right = [question.options[question.answer] for question in questions]
    spread = text_scores(given, right, seed=config.seed, resamples=config.eval.bootstrap)
    return {name: value.as_list() for name, value in spread.items()}
