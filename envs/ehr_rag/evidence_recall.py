"""Compute evidence recall step by step, where a generated world knows the rows that tell the label, and reward it:
outcome + evidence recall - cost."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ghar.envs.ehr_rag.episode import EventPrediction, Lookup
from ghar.envs.worlds.histories.story import critical
from ghar.envs.worlds.histories.truth import Gold
from ghar.episode import Act, Episode
from ghar.metrics.bootstrap import mean_interval
from ghar.rewards.compose import EpisodeReward
from ghar.rewards.outcome import score_outcome

SEARCHES = ("refine", "react")  # roles whose reply is a look-up


def match_gold_rows(gold: Gold, lookups: Iterable[Lookup]) -> dict[str, set[tuple[str, str]]]:
    """The rows that tell, of each evidence, among those that were looked up; a trajectory shows its values as rows."""
    lines = [line for lookup in lookups for passage in lookup.passages for line in passage.rows]
    return {why: {row for row in rows if any(_is_row(row, line) for line in lines)} for why, rows in gold.items()}


def recalls(gold: Gold, lookups: Sequence[Lookup]) -> dict[str, float]:
    """Evidence -> share of its rows that were found."""
    return {why: len(rows) / len(gold[why]) for why, rows in match_gold_rows(gold, lookups).items()}


def recall(gold: Gold, lookups: Sequence[Lookup]) -> float:
    """Mean over the evidence of a patient; 0 without any."""
    shares = recalls(gold, lookups)
    return sum(shares.values()) / len(shares) if shares else 0.0


def by_step(gold: Gold, lookups: Sequence[Lookup]) -> list[float]:
    """The recall after each look-up, in their order."""
    return [recall(gold, lookups[: n + 1]) for n in range(len(lookups))]


def gains(episode: Episode, gold: Gold) -> list[EvidenceRecall]:
    """What each look-up was the first to find, with the turn that asked for it: the choice of indicators, or a
    search."""
    lookups = episode.prediction.lookups if isinstance(episode.prediction, EventPrediction) else ()
    asked = _turns(episode)
    steps = [0.0, *by_step(gold, lookups)]
    return [
        EvidenceRecall(asked.get(_key(lookup)), after - before)
        for lookup, before, after in zip(lookups, steps, steps[1:], strict=False)
    ]


def _turns(episode: Episode) -> dict[tuple[str, str], int]:
    """(path, query) of a look-up -> the turn that asked for it."""
    acts: list[Any] = [record for record in episode.trace if isinstance(record.effect, Act)]
    turn_of: dict[tuple[str, str], int] = {}
    for turn, record in enumerate(acts[: len(episode.turns)]):
        act, value = record.effect, record.result.value
        if act.role == "indicators":
            turn_of["numbers", ""] = turn
        elif act.role in SEARCHES and value:
            query = value[1] if isinstance(value, tuple) else value
            if isinstance(query, str):
                turn_of[act.facts["path"], query] = turn
    return turn_of


def _key(lookup: Lookup) -> tuple[str, str]:
    return (lookup.path, "" if lookup.path == "numbers" else lookup.query)


def _is_row(row: tuple[str, str], line: str) -> bool:
    """Whether a line is this row, or the trajectory that it is of."""
    stamp, name = row
    if line.startswith("["):
        label = line[len(stamp) :].rpartition(" (value: ")[0] or line[len(stamp) :]
        return line.startswith(stamp) and label.endswith(f" - {name}")
    return line.startswith(f"{name}: [") and stamp in line


def compute_evidence_bound(
    switches: Mapping[int, tuple[bool, bool, bool]], rows: Sequence[Mapping[str, Any]]
) -> float | None:
    """Best expected accuracy on these patients for someone who knows what was found of each, and nothing else: of all
    with the same findings the answer that is right most often. What was not found may be absent or missed.

    None where the rows have no evidence.
    """
    groups: defaultdict[tuple[bool | None, ...], list[float]] = defaultdict(list)
    for row in rows:
        complete = {why for why, share in (row.get("evidence") or {}).items() if share == 1.0}
        state = switches[row["subject_id"]]
        linked, rising = {"onset", "trigger"} <= complete, state[1] if "slope" in complete else None
        groups[linked, rising, "exculpating" in complete].append(critical(*state))
    if not any(row.get("evidence") for row in rows):
        return None
    right = sum(max(sum(some), len(some) - sum(some)) for some in groups.values())
    return right / len(rows)


def recall_numbers(rows: Sequence[Mapping[str, Any]], draw: Mapping[str, Any]) -> dict[str, Any]:
    """{"evidence": {name or "all": [value, low, high]}, "evidence_by_step": [mean after look-up 1, 2, ...]} of rows
    whose patients have evidence; nothing where none has."""
    gold_rows = [row for row in rows if row.get("evidence")]
    if not gold_rows:
        return {}
    names = sorted({name for row in gold_rows for name in row["evidence"]})
    intervals = {}
    for name in names:
        some = [row for row in gold_rows if name in row["evidence"]]
        patients = [row["subject_id"] for row in some]
        intervals[name] = mean_interval([row["evidence"][name] for row in some], patients=patients, **draw).as_list()
    every = [sum(row["evidence"].values()) / len(row["evidence"]) for row in gold_rows]
    intervals["all"] = mean_interval(every, patients=[row["subject_id"] for row in gold_rows], **draw).as_list()
    longest = max(len(row["evidence_by_step"]) for row in gold_rows)
    steps = [[row["evidence_by_step"][min(n, len(row["evidence_by_step"]) - 1)] for row in gold_rows
              if row["evidence_by_step"]] for n in range(longest)]  # fmt: skip
    return {"evidence": intervals, "evidence_by_step": [sum(step) / len(step) for step in steps]}


@dataclass(frozen=True)
class EvidenceRecall:
    """turn: index of the turn that asked for a look-up, None where no one was asked. recall: of the evidence, what it
    was the first to show, from 0 to 1."""

    turn: int | None
    recall: float


def score_evidence(
    episode: Episode, label: int, eta: float, gains: Sequence[EvidenceRecall], *, recall: float, cost: float
) -> EpisodeReward:
    """η R_orm at the last turn, and at the turn that asked for a look-up what it brought, `recall` a whole evidence,
    less `cost` each.

    A look-up that no one was asked about costs nothing, and what it brought counts at the last turn. An episode that
    failed or was cut short has no outcome and is worth 0, as in `score_outcome`.
    """
    outcome = score_outcome(episode, label, eta)
    if episode.failure is not None or episode.cut or not episode.turns:
        return EpisodeReward({**outcome.terms, "recall": 0.0, "cost": 0.0}, 0.0, outcome.per_turn, outcome.composition)
    per_turn = [dict(turn) for turn in outcome.per_turn]
    for one in gains:
        turn = per_turn[-1 if one.turn is None else one.turn]
        turn["recall"] = turn.get("recall", 0.0) + recall * one.recall
        if one.turn is not None:
            turn["cost"] = turn.get("cost", 0.0) - cost
    asked = sum(one.turn is not None for one in gains)
    terms = {**outcome.terms, "recall": sum(one.recall for one in gains), "cost": -float(asked)}
    return EpisodeReward(terms, sum(sum(turn.values()) for turn in per_turn), tuple(per_turn), outcome.composition)
