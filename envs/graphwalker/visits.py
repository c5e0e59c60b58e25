"""Other tasks' cases as GraphWalker's: patients as lists of visits, with text embeddings for EHR embeddings."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from ghar.config import EnvConfig
from ghar.data.cohort import Sample
from ghar.data.tasks.subsets import known_by, micros
from ghar.data.views.visits import TextView, visit_list, visit_lists
from ghar.envs.graphwalker.encoders.embeddings import Embeddings, embed_texts
from ghar.envs.graphwalker.pool import EncodedCases, dense, everyone
from ghar.envs.graphwalker.pretraining import practice
from ghar.envs.graphwalker.selectors.prompt import Prompt, visits_head
from ghar.envs.graphwalker.selectors.protocol import EVERY, Name, Patient
from ghar.envs.graphwalker.settings import Settings
from ghar.envs.records import Records
from ghar.envs.system import Reader

WITHOUT_SERIES: tuple[Name, ...] = tuple(name for name in EVERY if name != "time_series")


def visits_material(records: Records, settings: Settings) -> EncodedCases[Sample]:
    """The samples of any task of visits, in the split that all systems share; encoded whole, however prompts cut."""
    config, splits, names = records.config, records.splits, records.described
    model, samples = dense(config.retriever.kind), tuple(everyone(splits))
    text = partial(_text, names, config.env.prompts)
    views = visit_lists(samples, partial(_name, names), style=config.env.prompts, budget=sys.maxsize, count=len)
    vectors = embed_texts([view.text for view in views], model)
    embeddings = text_vectors(tuple(sample.sample_id for sample in samples), vectors)
    piece, render = partial(_piece, names, config.env), partial(_whole, text)
    task, head = records.task, visits_head(records.task)
    exercises = None
    if config.model.kind == "demo":
        exercises = practice((task.name, task.question, task.labels), head, splits.known, names, render,
                             settings.inference == "compare")  # fmt: skip
    return EncodedCases(
        settings, config.seed, task, head, splits, embeddings, embeddings, model, piece, render,
        no_looks, selectors=WITHOUT_SERIES, generated=records.cohort.generated,
        credentialed=records.credentialed(records.cohort), times=_times(samples) if config.data.earlier else None,
        practice=exercises, ceilings=partial(_ceilings, records, settings.k),
    )  # fmt: skip


def _ceilings(records: Records, k: int, asked: Sequence[int]) -> Mapping[str, float] | None:
    """What examples can tell of these patients at best, in a world that says so."""
    truth = records.cases_truth
    if truth is None:
        return None
    pool, trained = ([sample.subject_id for sample in some] for some in (records.splits.known, records.splits.train))
    return truth.ceilings(asked, pool, trained, k)


def _times(samples: Sequence[Sample]) -> dict[str, tuple[int, int]]:
    """When each sample is predicted, and when its outcome is known."""
    outcome_times = known_by(samples).tolist()
    return {s.sample_id: (micros(s.prediction_time), at) for s, at in zip(samples, outcome_times, strict=True)}


def text_vectors(ids: tuple[str, ...], vectors: np.ndarray) -> Embeddings:
    """Vectors of a text encoder, which predicts nothing."""
    return Embeddings(ids, vectors, np.zeros((len(ids), 0), np.float32))


def no_looks(sample: Any) -> Mapping[str, str]:
    """There is nothing to look at but the text."""
    return {}


def _name(names: Mapping[str, str], code: str) -> str:
    return names.get(code, code)


def _text(names: Mapping[str, str], style: Any, sample: Sample, reader: Reader, budget: int) -> TextView:
    return visit_list(sample, partial(_name, names), style=style, budget=budget, count=reader.count)


def _whole(text: Any, sample: Sample) -> str:
    return text(sample, Reader(), sys.maxsize).text


def _piece(names: Mapping[str, str], env: EnvConfig, prompt: Prompt, reader: Reader, sample: Sample) -> Patient:
    return prompt.visits(sample, partial(_text, names, env.prompts, sample, reader), env.history_tokens)
