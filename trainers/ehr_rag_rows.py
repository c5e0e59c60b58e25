"""What is kept of EHR-RAG: episode rows, with when what was found and how each argument used it, and the numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from envs.ehr_rag.episode import EventCase, EventPrediction, Lookup
from ghar.config import Config
from ghar.episode import Episode
from ghar.metrics.policy import policy_summary
from ghar.metrics.scores import class_f1
from ghar.retrieval.ether import EventPassage
from rewards.outcome import score_outcome
from trainers.play import effort_row, format_errors

SECOND = "%Y-%m-%d %H:%M:%S"


def case_row(case: EventCase, episode: Episode, method: str, eta: float) -> dict[str, Any]:
    """One row of episodes/<method>.jsonl (schema: ghar.metrics.runfolder), with the format errors by name and
    `lookups` and `arguments` (ghar.metrics.lookups)."""
    reward = score_outcome(episode, case.label, eta)
    found = episode.prediction if isinstance(episode.prediction, EventPrediction) else EventPrediction(None)
    return _row(case, episode.prediction.label, method) | {
        "retrieved": bool(found.lookups),
        "iterations": len(found.lookups),
        "rewards": dict(reward.terms),
        "reward": reward.total,
        "errors": format_errors(episode),
        "lookups": [_lookup(lookup, found.arguments) for lookup in found.lookups],
        "arguments": dict(found.arguments),
        **effort_row(episode),
    }


def linear_row(case: EventCase, shares: np.ndarray, method: str) -> dict[str, Any]:
    """The row of a prediction that no policy made. shares: of the labels."""
    return _row(case, int(shares.argmax()), method) | {
        "label_probabilities": shares.tolist(), "retrieved": False, "iterations": 0, "prompt_tokens": 0,
        "completion_tokens": 0, "seconds": 0.0, "rewards": {}, "reward": 0.0, "failure": None, "errors": [],
        "lookups": [], "arguments": {}, "turns": [],
    }  # fmt: skip


def _row(case: EventCase, predicted: int | None, method: str) -> dict[str, Any]:
    labels = case.task.labels
    return {
        "policy": method,
        "split": "test",
        "sample_id": case.sample_id,
        "patient": f"{case.text or 'no static facts'}\npredicted at {case.prediction_time:{SECOND}}",
        "prediction_time": f"{case.prediction_time:{SECOND}}",
        "label": labels[case.label],
        "prediction": None if predicted is None else labels[predicted],
        "label_probabilities": None,
        "correct": predicted == case.label,
        "needs_retrieval": None,
    }


def _lookup(lookup: Lookup, arguments: Mapping[str, str]) -> dict[str, Any]:
    passages = [_passage(passage, arguments) for passage in lookup.passages]
    return {"path": lookup.path, "step": lookup.step, "query": lookup.query, "passages": passages}


def _passage(passage: EventPassage, arguments: Mapping[str, str]) -> dict[str, Any]:
    used = {side: used_lines(passage, said) for side, said in arguments.items()}
    return {
        "kind": passage.kind,
        "ident": passage.ident,
        "score": passage.score,
        "first": f"{passage.first:{SECOND}}",
        "last": f"{passage.last:{SECOND}}",
        "text": passage.text,
        "used": {side: lines for side, lines in used.items() if lines},
    }


def used_lines(passage: EventPassage, argument: str) -> list[str]:
    """The lines of a passage that an argument names: their description stands in it, letter by letter but for case."""
    said = argument.casefold()
    return [line for line in passage.rows if (name := _name(line)) and name.casefold() in said]


def _name(line: str) -> str:
    """The description of a row ("[time] type - description (value: ...)") or of a trajectory ("name: [time] ...")."""
    if line.startswith("["):
        return line.partition(" - ")[2].rpartition(" (value: ")[0] or line.partition(" - ")[2]
    return line.partition(": [")[0]


def method_summary(rows: Sequence[Mapping[str, Any]], labels: Sequence[str], config: Config) -> dict[str, Any]:
    """`policy_summary`, and "class_f1" {label: [value, low, high]} and "errors" {format error: count}.

    A method that asks nobody has no reward and no retrieval to speak of.
    """
    draw = {"seed": config.seed, "resamples": config.eval.bootstrap}
    found = policy_summary(rows, labels, **draw)
    if not any(row["turns"] for row in rows):
        for name in ("reward", "retrieval_rate", "iterations", "tokens", "seconds"):
            found.pop(name)
    place = {label: i for i, label in enumerate(labels)}
    truth = [place[row["label"]] for row in rows]
    guess = [None if row["prediction"] is None else place[row["prediction"]] for row in rows]
    by_class = class_f1(truth, guess, len(labels), **draw)
    return found | {
        "class_f1": {labels[i]: interval.as_list() for i, interval in by_class.items()},
        "errors": dict(Counter(error for row in rows for error in row["errors"]).most_common()),
    }
