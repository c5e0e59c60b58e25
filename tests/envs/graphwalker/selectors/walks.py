"""Small worlds for the tests of this folder: functions with diminishing gains, patients, a scorer without a model."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ghar.data.tasks.samples import TimeSeries
from ghar.envs.graphwalker.selectors.graph import build_graph
from ghar.envs.graphwalker.selectors.protocol import (
    Ask,
    Effort,
    Entropy,
    ExamplePool,
    Generate,
    HiddenStates,
    InfluenceGradients,
    Labels,
    Patient,
    Perplexity,
    Selection,
    SelectionQuery,
    Selector,
    Shots,
    allowed_for,
)  # fmt: skip
from ghar.envs.graphwalker.selectors.search import Measure

FEATURES = ("VITAL/heart rate", "VITAL/glucose", "VITAL/ph")
LABELS = ("no", "yes")


def coverage(rng: np.random.Generator, rows: int, topics: int = 6) -> Callable[[Shots], float]:
    """H(x | S): a patient's topics that nobody of S covers, with few different weights, so that ties happen."""
    covers = rng.random((rows, topics)) < 0.4
    weights = rng.integers(1, 4, topics) / 4
    return lambda shots: float(weights[~covers[list(shots)].any(axis=0)].sum())


def soft_coverage(rng: np.random.Generator, rows: int, topics: int = 6) -> Callable[[Shots], float]:
    """The same with parts of topics: gains diminish and hardly ever tie."""
    share, weights = rng.random((rows, topics)) * 0.7, rng.random(topics)
    return lambda shots: 3.0 + float((weights * np.prod(1 - share[list(shots)], axis=0)).sum())


def links(rng: np.random.Generator, rows: int, degree: int) -> list[list[int]]:
    return [sorted(set(rng.integers(0, rows, degree).tolist()) - {row}) for row in range(rows)]


def play(search: Measure, entropy: Callable[[Shots], float]) -> tuple[Selection, list[tuple[Shots, ...]]]:
    """What a search returns, and the batches of sets it had measured."""
    asked = []
    try:
        sets = next(search)
        while True:
            asked.append(sets)
            sets = search.send([entropy(shots) for shots in sets])
    except StopIteration as end:
        return end.value, asked


def make_patient(rng: np.random.Generator, number: int, subject: int, steps: int | None = None) -> Patient:
    steps = steps or int(rng.integers(1, 5))
    values = rng.normal(5, 2, (steps, len(FEATURES))).astype(np.float32)
    values[rng.random(values.shape) < 0.2] = np.nan
    hours = np.arange(1, steps + 1, dtype=np.float32) * 24
    source = np.where(np.isnan(values), -1, 0)
    label = int(rng.integers(0, 2))
    series = TimeSeries(FEATURES, hours, values, source, ~np.isnan(values))
    ids = tuple(rng.integers(2, 60, 6).tolist())
    answer = LABELS[label]
    return Patient(f"s{number}", subject, label, f"text of {number}", ids, (*ids, 61), series, answer=answer)


def make_world(seed: int, rows: int = 30, queries: int = 6, **chosen: Any) -> tuple[ExamplePool, list[SelectionQuery]]:
    """A pool with a walkable graph, and queries: the first is a stay of a pool patient, the second a copy of one."""
    rng = np.random.default_rng(seed)
    patients = tuple(make_patient(rng, i, subject=i) for i in range(rows))
    valid = tuple(make_patient(rng, 500 + i, subject=500 + i) for i in range(3))
    vectors, words = rng.normal(size=(rows, 5)).astype(np.float32), rng.normal(size=(rows, 4)).astype(np.float32)
    settings = {"name": "graphwalker", "k": 3, "k_g": 4, "k_c": 2, "k_a": 2, "variant": "paper"}
    selector = Selector(**{**settings, "utility": "entropy", **chosen})

    def embed(texts: Sequence[str]) -> np.ndarray:
        return np.stack([np.random.default_rng(zlib.crc32(text.encode())).normal(size=4) for text in texts])

    graph = build_graph(vectors, [p.sample_id for p in patients], k=selector.k_g)
    pool = ExamplePool(
        patients, valid, LABELS, "Will it happen?", vectors, words, embed, graph, selector, Effort(None, 60), seed
    )
    asked = [make_patient(rng, 900 + i, subject=900 + i) for i in range(queries)]
    asked[0] = make_patient(rng, 900, subject=3)
    own = patients[4]
    asked[1] = Patient("copy", 901, own.label, "a copy", (5, 6), (5, 6, 61), own.series, answer=own.answer)
    return pool, [
        SelectionQuery(patient, rng.normal(size=5), rng.normal(size=4), allowed_for(patient, patients))
        for patient in asked
    ]


class HashScorer:
    """Answers by a hash of what is asked, so that an answer depends on its ask alone; counts calls and prompts."""

    def __init__(self) -> None:
        self.calls = self.prompts = 0

    def answer(self, asks: Sequence[Ask]) -> list[Any]:
        self.calls += 1
        return [self._one(ask) for ask in asks]

    def _one(self, ask: Ask) -> Any:
        if isinstance(ask, Entropy):
            self.prompts += len(ask.sets)
            return [3 - 0.2 * len(s) + _draw(ask.patient.sample_id, s) for s in ask.sets]
        if isinstance(ask, Labels):
            self.prompts += len(ask.sets) * len(LABELS)
            shares = np.array([_draw(ask.patient.sample_id, s, "label") for s in ask.sets])
            return np.log(np.stack([0.1 + 0.8 * shares, 0.9 - 0.8 * shares], axis=1))
        if isinstance(ask, Perplexity):
            self.prompts += len(ask.shots)
            return [_draw(row) for row in ask.shots]
        if isinstance(ask, Generate):
            self.prompts += len(ask.prompts)
            return [str(int(11 * _draw(text))) if ask.choices else f"because {_draw(text)}" for text in ask.prompts]
        if isinstance(ask, HiddenStates):
            rows = np.array([[_draw(p.sample_id, i) for i in range(4)] for p in ask.patients])
            return rows, rows[:, ::-1], rows.sum(axis=1)
        assert isinstance(ask, InfluenceGradients)
        table = [[_draw(place, row, ask.patient.sample_id) for row in ask.shots] for place in range(len(ask.anchor))]
        return -0.5, np.array(table)


def _draw(*parts: object) -> float:
    return zlib.crc32(repr(_plain(parts)).encode()) / 2**32


def _plain(value: Any) -> Any:
    """numpy's numbers as Python's, whose repr does not change with numpy's version."""
    if isinstance(value, tuple | list):
        return tuple(_plain(part) for part in value)
    return value.item() if isinstance(value, np.generic) else value
