"""GraphWalker and the other demonstration selectors, evaluated: who is chosen for whom, at what cost, with what effect.

python launch/evaluate.py policy=graphwalker task=mimic3_mortality data.root=... selector.k=3
Another selector: selector.name=cone (or any of ghar/selectors). Shot scaling: --multirun selector.k=1,2,3,4.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from envs.graphwalker.react import AGENT, ROLES, ReactCase, react
from envs.rollout import Job, rollout
from envs.upstream import with_examples
from ghar.config import Config
from ghar.data.cohort import Task
from ghar.data.tasks.splits import Splits
from ghar.data.views.series import number
from ghar.episode import Episode, Evidence, Retrieve
from ghar.llm.engine import Engine
from ghar.llm.engines import served
from ghar.llm.models import load_pretrained, untrained
from ghar.llm.policy import EnginePolicy
from ghar.metrics.clinical import best_threshold, length_of_stay, risk
from ghar.metrics.report import conclude
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.scores import classification, confusion_matrix
from ghar.metrics.selection import NAMES, write_selection
from ghar.progress import progress
from ghar.selectors.prompt import name_of
from ghar.selectors.protocol import Effort, Labels, Query
from ghar.selectors.scorer import EngineScorer
from trainers.demonstrations import (
    Cases,
    Chosen,
    choose,
    examples_of,
    make_pool,
    make_query,
    prepare,
    texts,
    tokenizer_names,
)
from trainers.graphwalker_rows import Probabilities, episode_rows, shown
from trainers.label_scores import label_probabilities
from trainers.runs.models import use_cores
from trainers.runs.resume import as_yaml

EFFORT = Effort()
BATCH = 64  # patients whose labels are asked for together


def evaluate(config: Config, effort: Effort = EFFORT, training: Any = None) -> dict[str, Any]:
    """Choose, predict, and write summary.json, selection.json, episodes/ and report.html to run_dir; the summary.

    effort: of selectors that measure; training: of the encoder (`ghar.encoders.train.Training`), as published.
    """
    if config.task.name == "medqa":
        from trainers.questions import evaluate_questions  # reads this module

        return evaluate_questions(config, effort)
    use_cores(config.threads)
    began = time.perf_counter()
    cases = prepare(config, training)
    folder = RunFolder.open(Path(config.run_dir))
    folder.write_config(as_yaml(config))
    with language_model(cases) as (engine, tokenizer, context):
        prompt, pool, queries = make_pool(cases, tokenizer, context, effort)
        scorer = EngineScorer(engine, prompt, pool.patients)
        binary = len(pool.labels) == 2  # validation patients get examples too, for the threshold of F1
        valid = [make_query(cases, pool, patient) for patient in pool.valid] if binary else []
        both = choose(pool, [*queries, *valid], scorer, config.env.in_flight)
        cost = selection_cost(both, scorer, time.perf_counter() - began)
        direct = cases.selector.inference == "direct"
        shares = predict(both, scorer) if direct else react_shares(cases, engine, tokenizer, both)
    n = len(queries)
    chosen, found = replace(both, queries=tuple(queries), selections=both.selections[:n]), shares[:n]
    threshold = _threshold(valid, shares[n:])
    rows = episode_rows(chosen, scorer, found)
    folder.write_episodes(pool.selector.name, rows)
    clinical = clinical_numbers(config, [q.patient.label for q in queries], found, len(pool.labels), threshold)
    write_selection(folder, shown(chosen, rows, clinical, cost))
    about = {"generated": cases.cohort.generated, "credentialed": cases.cohort.credentialed}
    summary = about | summarise(config, cases.task, cases.splits, chosen, found)
    return conclude(folder, {**summary, "clinical": clinical, "cost": cost}, partial(table, clinical))


def table(clinical: dict[str, list[float]], summary: dict[str, Any]) -> str:
    """What is printed at the end."""
    lines = [
        f"{NAMES[name]:52} {100 * value:6.2f}   {100 * mean:.2f}±{100 * deviation:.2f} over resamples"
        for name, (value, mean, deviation) in clinical.items()
    ]
    if summary["generated"]:
        lines.append("These patients are generated; the numbers say nothing about real ones.")
    return "\n".join(lines)


@contextmanager
def language_model(cases: Cases) -> Iterator[tuple[Engine, Any, int]]:
    """Engine, tokenizer and context length of model=...: the demo's small model, untrained, or a pretrained folder."""
    config, model = cases.config, cases.config.model
    if model.path is not None:
        network, tokenizer = load_pretrained(model.path, model.dtype)
    else:
        network, tokenizer = untrained(config, texts(cases), tokenizer_names(cases), config.seed)
    with served(config, network, tokenizer) as engine:
        yield engine, tokenizer, network.config.max_position_embeddings


def predict(chosen: Chosen, scorer: EngineScorer) -> list[tuple[float, ...]]:
    """Label probabilities of each query with its examples, from the log-probs of the labels."""
    found = []
    pairs = list(zip(chosen.queries, chosen.selections, strict=True))
    with progress(len(pairs), "Predict with the examples") as advance:
        for start in range(0, len(pairs), BATCH):
            asks = [Labels(query.patient, (selection.shots,)) for query, selection in pairs[start : start + BATCH]]
            found += [tuple(np.exp(logp[0]).tolist()) for logp in scorer.answer(asks)]
            advance(len(asks))
    return found


def react_shares(cases: Cases, engine: Engine, tokenizer: Any, chosen: Chosen) -> list[tuple[float, ...] | None]:
    """Label probabilities where ReAct ends with the examples before each of its prompts; None for no answer.

    An engine without log-probs gives the answer alone: probability 1 for it.
    """
    examples = examples_of(chosen)
    jobs = [_job(cases, query, examples[query.patient.sample_id]) for query in chosen.queries]
    with progress(len(jobs), "ReAct with the examples") as advance:
        policies = {AGENT: EnginePolicy(engine, temperature=0)}
        config = cases.config
        episodes = rollout(
            jobs, policies, _Nothing(), seed=config.seed, in_flight=config.env.in_flight, on_done=advance
        )
    labels = cases.task.labels
    if hasattr(engine, "score"):
        return list(label_probabilities(engine, tokenizer, episodes, labels))
    return [_sure(episode, len(labels)) for episode in episodes]


def _sure(episode: Episode, labels: int) -> tuple[float, ...] | None:
    said = episode.prediction.label
    return None if said is None else tuple(float(i == said) for i in range(labels))


def _job(cases: Cases, query: Query, examples: str) -> Job:
    series = query.patient.series
    assert series is not None  # ghar.configure lets nobody look into medical questions
    looks = {}
    for i, code in enumerate(series.features):
        values = series.values[:, i][~np.isnan(series.values[:, i])]
        if len(values):
            first, last, low, high = (number(v) for v in (values[0], values[-1], values.min(), values.max()))
            looks[name_of(code)] = f"first {first}, last {last}, lowest {low}, highest {high}"
    patient = query.patient
    case = ReactCase(patient.sample_id, patient.text, looks, cases.task, patient.label)
    return Job(patient.sample_id, 0, lambda: with_examples(react(case), examples, ROLES))


class _Nothing:
    """The corpus of episodes that retrieve nothing."""

    def retrieve(self, requests: Sequence[Retrieve]) -> list[Evidence]:
        raise RuntimeError("ReAct on a record looks into the record alone")


def _threshold(valid: Sequence[Query], found: Probabilities) -> float:
    """Where F1 is best on validation patients; 0.5 where there are none."""
    if not valid:
        return 0.5
    return best_threshold([q.patient.label for q in valid], [None if row is None else row[1] for row in found])


def clinical_numbers(
    config: Config, labels: Sequence[int], found: Probabilities, classes: int, threshold: float
) -> dict[str, list[float]]:
    """The paper's metrics: {name: [value, mean, deviation]}; those that these labels leave undefined are left out."""
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    if classes == 2:
        spread = risk(labels, [None if row is None else row[1] for row in found], threshold, **draw)
    else:
        spread = length_of_stay(labels, found, classes, **draw)
    return {name: value.as_list() for name, value in spread.items()}


def selection_cost(chosen: Chosen, scorer: EngineScorer, seconds: float) -> dict[str, float]:
    """Per patient, of the selection: scored prompts (what all patients share included), tokens, seconds."""
    everyone = (*chosen.pool.patients, *(query.patient for query in chosen.queries))
    n, tally = len(chosen.queries), scorer.scores.tally if scorer.scores is not None else None
    return {
        "patients": float(n),
        "scored prompts a patient": tally.prompts / n if tally else 0.0,
        "prompt tokens a patient": tally.tokens / n if tally else 0.0,
        "prompt tokens a patient, each prompt from scratch": tally.scratch / n if tally else 0.0,
        "generated replies a patient": scorer.said / n,
        "records cut to fit": float(sum(patient.dropped > 0 for patient in everyone)),
        "seconds in all": seconds,
    }


def summarise(config: Config, task: Task, splits: Splits[Any], chosen: Chosen, found: Probabilities) -> dict[str, Any]:
    """summary.json, but for where the cases are from, the clinical numbers and the cost."""
    pool = chosen.pool
    labels, n = [query.patient.label for query in chosen.queries], len(pool.labels)
    guess = [None if row is None else int(np.argmax(row)) for row in found]
    shares = np.array([[1 / n] * n if row is None else row for row in found])
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    numbers = classification(labels, guess, n, shares, **draw)
    return {
        "system": "graphwalker",
        "scale": config.scale.name,
        "experiment": f"{config.task.name} on {config.data.name}",
        "seed": config.seed,
        "task": {"name": task.name, "question": task.question, "labels": list(pool.labels)},
        "ceilings": None,
        "data": {
            "train samples": len(splits.train),
            "validation samples": len(splits.valid),
            "test samples": len(splits.test),
            "cohorts": len(pool.graph.prototypes) if pool.graph is not None else 0,
        },
        "policies": {
            pool.selector.name: {
                "n": len(labels),
                "failures": 0,
                "confusion": confusion_matrix(labels, guess, n).tolist(),
                **{name: interval.as_list() for name, interval in numbers.items()},
            }
        },
        "differences": {},
    }
