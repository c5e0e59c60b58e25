"""EHR-RAG, its ablations and its baselines, evaluated on one of EHRSHOT's tasks.

python launch/evaluate.py policy=ehr_rag task=guo_los ehr_rag.answers=scripted 'ehr_rag.methods=[ehr_rag,rag,no_der]'
Every method is put to the same test patients within one budget of evidence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from envs.ehr_rag.episode import Method
from ghar.config import Config
from ghar.llm.policy import EnginePolicy, Policy
from ghar.metrics.policy import compare
from ghar.metrics.report import conclude
from ghar.metrics.runfolder import RunFolder
from ghar.metrics.scores import classification
from trainers.ehr_rag_rows import case_row, linear_row, method_summary
from trainers.ehr_rag_study import LINEAR, EventStudy, play_cases, prepare
from trainers.runs.resume import as_yaml

Answers = tuple[Policy, Callable[[str], int], int]  # who is asked, how tokens are counted, how many a prompt may show
Rows = list[dict[str, Any]]


def evaluate(config: Config) -> dict[str, Any]:
    """Evaluate `ehr_rag.methods` on the test patients; writes summary.json, episodes/ and report.html to run_dir."""
    study = prepare(config)
    folder = RunFolder.open(Path(config.run_dir))
    folder.write_config(as_yaml(config))
    if study.cohort.generated:
        print("These patients are GENERATED; nothing below says anything about real ones.")
    rows: dict[str, Rows] = {}
    shots: dict[str, Any] = {}
    with _answers(study) as answers:
        for method in study.ehr_rag.methods:
            if method in LINEAR:
                rows[method], shots[method] = _linear(study, method)
            else:
                rows[method] = _play(study, cast(Method, method), answers())
            folder.write_episodes(method, rows[method])
    return conclude(folder, {**_summary(study, rows), "shots": shots}, table)


@contextmanager
def _answers(study: EventStudy) -> Iterator[Callable[[], Answers]]:
    """Who answers, made ready only where a method asks somebody."""
    if set(study.ehr_rag.methods) <= set(LINEAR):
        yield lambda: (_ for _ in ()).throw(AssertionError("nobody is asked"))
    elif study.ehr_rag.answers == "scripted":
        rule = study.rule()
        yield lambda: (rule, lambda text: len(text.split()), study.ehr_rag.budget[1])
    else:
        from trainers.ehr_rag_model import language_model

        with language_model(study) as (engine, count, tokens):
            learned = EnginePolicy(engine, temperature=0)
            yield lambda: (learned, count, tokens)


def _play(study: EventStudy, method: Method, answers: Answers) -> Rows:
    policy, count, tokens = answers
    config, test = study.config, study.splits.test
    episodes = study.episodes(method, count, tokens)
    played = play_cases(study, test, policy, episodes, seed=config.seed, title=f"Evaluating {method}")
    return [case_row(case, e, method, config.reward.eta) for case, e in zip(test, played, strict=True)]


def _linear(study: EventStudy, method: str) -> tuple[Rows, dict[str, Any]]:
    """Rows of the regression on all training samples, and the numbers of every number of shots."""
    from trainers.linear_baselines import count_features, fit_shots, read_embeddings

    config, test, labels = study.config, study.splits.test, study.task.labels
    cases = sorted((*study.splits.train, *study.splits.valid, *test), key=lambda case: case.place)
    if method == "counts":
        features: Any = count_features(study.records(cases, apart=False), study.cohort.codes)
    else:
        features = read_embeddings(Path(study.ehr_rag.embeddings or ""), cases)
    row_of = {case.place: i for i, case in enumerate(cases)}
    found = fit_shots(features, row_of, study.splits, len(labels), config.seed, f"Fitting {method}")
    truth, draw = [case.label for case in test], {"seed": config.seed, "resamples": config.eval.bootstrap}
    numbers = {
        name: {
            metric: interval.as_list()
            for metric, interval in classification(
                truth, shares.argmax(axis=1).tolist(), len(labels), shares, **draw
            ).items()
        }
        for name, shares in found.items()
    }
    return [linear_row(case, share, method) for case, share in zip(test, found["all"], strict=True)], numbers


def _summary(study: EventStudy, rows: dict[str, Rows]) -> dict[str, Any]:
    config, labels = study.config, study.task.labels
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    first = next(iter(rows))
    others = [name for name in rows if name != first and name not in LINEAR] if first not in LINEAR else []
    return {
        "system": "ehr_rag",
        "generated": study.cohort.generated,
        "credentialed": study.cohort.credentialed,
        "scale": config.scale.name,
        "experiment": f"{config.task.name} on {config.data.name}, answered by {study.ehr_rag.answers}",
        "seed": config.seed,
        "task": {"name": study.task.name, "question": study.task.question, "labels": list(labels)},
        "data": study.counts,
        "policies": {name: method_summary(found, labels, config) for name, found in rows.items()},
        "differences": {f"{first} - {other}": compare(rows[first], rows[other], **draw) for other in others},
    }


def table(summary: dict[str, Any]) -> str:
    """The methods' main numbers as text."""
    columns = ("accuracy", "macro_f1", "iterations", "tokens")
    labels = summary["task"]["labels"]
    lines = [f"{'method':12}" + "".join(f"{name:>24}" for name in (*columns, *(f"F1 {label}" for label in labels)))]
    for name, numbers in summary["policies"].items():
        found = [numbers.get(column) for column in columns] + [numbers["class_f1"].get(label) for label in labels]
        lines.append(f"{name:12}" + "".join(f"{_cell(interval):>24}" for interval in found))
        if numbers["errors"]:
            told = ", ".join(f"{error} {n}" for error, n in numbers["errors"].items())
            lines.append(f"{'':12}unreadable replies in {numbers['n']} episodes: {told}")
    for name, by_shots in summary["shots"].items():
        told = ", ".join(f"{shots} {found['macro_f1'][0]:.3f}" for shots, found in by_shots.items())
        lines.append(f"macro-F1 of {name} by training samples a class: {told}")
    if summary["generated"]:
        lines.append("These patients are generated; the numbers say nothing about real ones.")
    return "\n".join(lines)


def _cell(interval: list[float] | None) -> str:
    return "-" if interval is None else "{:.3f} [{:.3f}, {:.3f}]".format(*interval)
