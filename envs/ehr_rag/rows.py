"""What EHR-RAG adds to rows of episodes and to a variant's numbers: when what was found, what of it fitted into the
prompt that decided, and how arguments used it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ghar.envs.case import Case
from ghar.envs.ehr_rag.context import PromptContext
from ghar.envs.ehr_rag.episode import EventPrediction, EventReading, Lookup
from ghar.envs.ehr_rag.ether import EventPassage, RowPassage
from ghar.envs.ehr_rag.evidence_recall import by_step, recall_numbers, recalls
from ghar.envs.system import Variant
from ghar.episode import Act, Episode, Passage
from ghar.metrics.policy import policy_summary
from ghar.metrics.rows import patients_of
from ghar.metrics.scores import class_f1

CITED = re.compile(r"\[([0-9][0-9, \-–]{0,80})\]")  # [7], [7, 9] or [7-9]
PART = re.compile(r"([0-9]{1,6})(?: ?[-–] ?([0-9]{1,6}))?")
SECOND = "%Y-%m-%d %H:%M:%S"
OF_POLICIES = ("reward", "retrieval_rate", "iterations", "tokens", "seconds")  # nothing to say of a regression
Row = Mapping[str, Any]


def event_row(episode: Episode, case: Case[EventReading], variant: Variant) -> dict[str, Any]:
    """`prediction_time`, `found` (look-ups with their passages) and `arguments` of a row; an iteration is a look-up.

    Where the rows that tell are known: `evidence`, the share found of each, and `evidence_by_step`, the recall after
    each look-up."""
    rows, lookups = case.reads.gold, _prediction(episode).lookups
    gold = {"evidence": recalls(rows, lookups), "evidence_by_step": by_step(rows, lookups)}
    timed = {"prediction_time": case.reads.asked_at}
    return (gold if rows else {}) | timed | text_row(episode, case, variant)


def text_row(episode: Episode, case: Case[Any], variant: Variant) -> dict[str, Any]:
    """`found` and `arguments` of a row about a text, in which nothing has a time."""
    prediction, context = _prediction(episode), _find_last_context(episode)
    return {
        "retrieved": bool(prediction.lookups),
        "iterations": len(prediction.lookups),
        "found": [_lookup(lookup, prediction.arguments, context) for lookup in prediction.lookups],
        "arguments": dict(prediction.arguments),
    }


def _prediction(episode: Episode) -> EventPrediction:
    prediction = episode.prediction
    return prediction if isinstance(prediction, EventPrediction) else EventPrediction(None)


def _find_last_context(episode: Episode) -> PromptContext:
    """What the last prompt showed, which decides."""
    acts = [record.effect for record in episode.trace if isinstance(record.effect, Act)]
    return acts[-1].facts["shown"] if acts else PromptContext({})


def fitted(passage: RowPassage, context: PromptContext) -> list[int]:
    """The places of a passage's lines that a prompt shows; the others did not fit into its budget."""
    if not passage.numbers:  # a trajectory
        return [0] if (passage.codes[0], passage.text) in context.indicators else []
    return [i for i, number in enumerate(passage.numbers) if number in context.rows]


def shows(act: Act, passage: Passage) -> bool:
    """Whether a prompt shows a line of a passage: rows of several stand in it by time, in brief ones by name."""
    assert isinstance(passage, RowPassage)
    return bool(fitted(passage, act.facts["shown"]))


def _lookup(lookup: Lookup, arguments: Mapping[str, str], context: PromptContext) -> dict[str, Any]:
    passages = [_passage(passage, arguments, context) for passage in lookup.passages]
    return {"path": lookup.path, "step": lookup.step, "query": lookup.query, "passages": passages}


def _passage(passage: RowPassage, arguments: Mapping[str, str], context: PromptContext) -> dict[str, Any]:
    used = {side: used_lines(passage, argument) for side, argument in arguments.items()}
    timed = isinstance(passage, EventPassage)
    return {
        "kind": passage.kind,
        "ident": passage.ident,
        "score": passage.score,
        **({"first": f"{passage.first:{SECOND}}", "last": f"{passage.last:{SECOND}}"} if timed else {}),
        "text": passage.text,
        "fitted": fitted(passage, context),
        "used": {side: lines for side, lines in used.items() if lines},
    }


def used_lines(passage: RowPassage, argument: str) -> list[str]:
    """The lines of a passage that an argument names: their description stands in it, letter by letter but for case, or
    of a sentence of a text its number in brackets, alone, in a list or within a span."""
    text = argument.casefold()
    if not isinstance(passage, EventPassage):
        spans = [PART.findall(cited) for cited in CITED.findall(argument)]
        bounds = [(int(first), int(last or first)) for span in spans for first, last in span]
        numbers = zip(passage.numbers, passage.rows, strict=True)
        return [line for row, line in numbers if any(first <= row + 1 <= last for first, last in bounds)]
    return [line for line in passage.rows if (name := _name(line)) and name.casefold() in text]


def _name(line: str) -> str:
    """The description of a row ("[time] type - description (value: ...)") or of a trajectory ("name: [time] ...")."""
    if line.startswith("["):
        return line.partition(" - ")[2].rpartition(" (value: ")[0] or line.partition(" - ")[2]
    return line.partition(": [")[0]


def variant_numbers(labels: Sequence[str], rows: Sequence[Row], draw: Mapping[str, int]) -> dict[str, Any]:
    """`policy_summary`, and "class_f1" {label: [value, low, high]} and "errors" {format error: count}.

    draw: seed and resamples of intervals. A variant that asks no one has no reward and no retrieval to speak of.
    """
    numbers = policy_summary(rows, labels, **draw)
    if not any(row["turns"] for row in rows):
        for name in OF_POLICIES:
            numbers.pop(name, None)  # policy_summary leaves out a reward that no one earned
    place = {label: i for i, label in enumerate(labels)}
    truth = [place[row["label"]] for row in rows]
    guess = [None if row["prediction"] is None else place[row["prediction"]] for row in rows]
    by_class = class_f1(truth, guess, len(labels), patients=patients_of(rows), **draw)
    return (
        numbers
        | recall_numbers(rows, draw)
        | {
            "class_f1": {labels[i]: interval.as_list() for i, interval in by_class.items()},
            "errors": dict(Counter(error for row in rows for error in row["errors"]).most_common()),
        }
    )
