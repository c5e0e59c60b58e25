"""What is kept of a selection: episode rows, selection.json, and the picture of one walk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from envs.graphwalker.react import AGENT
from ghar.metrics.cohort_chart import WalkPicture, cohort_chart, flatten
from ghar.selectors.scorer import EngineScorer
from trainers.demonstrations import Chosen

Probabilities = Sequence[Sequence[float] | None]


def episode_rows(chosen: Chosen, scorer: EngineScorer, found: Probabilities) -> list[dict[str, Any]]:
    """Rows of episodes/<selector>.jsonl (schema: ghar.metrics.runfolder)."""
    tokenizer, labels, rows = scorer.prompt.tokenizer, chosen.pool.labels, []
    for query, selection, shares in zip(chosen.queries, chosen.selections, found, strict=True):
        ids = [token for piece in (*scorer.path(selection.shots), query.patient.asked) for token in piece]
        prediction = None if shares is None else labels[int(np.argmax(shares))]
        turn = {"agent": AGENT, "role": "predict", "step": 0, "prompt": tokenizer.decode(ids), "evidence": None}
        rows.append(
            {
                "policy": chosen.pool.selector.name,
                "split": "test",
                "sample_id": query.patient.sample_id,
                "patient": query.patient.text,
                "label": labels[query.patient.label],
                "prediction": prediction,
                "label_probabilities": None if shares is None else list(shares),
                "correct": prediction == labels[query.patient.label],
                "needs_retrieval": None,
                "retrieved": False,
                "iterations": 1,
                "prompt_tokens": len(ids),
                "completion_tokens": 1,
                "seconds": 0.0,
                "rewards": {},
                "reward": None,
                "failure": None,
                "turns": [{**turn, "reply": prediction or "", "format_ok": prediction is not None}],
            }
        )
    return rows


def shown(
    chosen: Chosen, rows: Sequence[dict[str, Any]], clinical: dict[str, list[float]], cost: dict[str, float]
) -> dict[str, Any]:
    """selection.json (schema: ghar.metrics.selection)."""
    pool, lines = chosen.pool, []
    for selection, row in zip(chosen.selections, rows, strict=True):
        gains = selection.gains or (None,) * len(selection.shots)
        patients = [pool.patients[shot] for shot in selection.shots]
        shots = [
            {"sample_id": patient.sample_id, "label": pool.labels[patient.label], "gain": gain}
            for patient, gain in zip(patients, gains, strict=True)
        ]
        about = {key: row[key] for key in ("sample_id", "label", "prediction")}
        lines.append({**about, "scored": selection.scored, "shots": shots})
    about = {"selector": pool.selector.name, "k": pool.selector.k, "cost": cost, "clinical": clinical}
    return {**about, "rows": lines, "walk": _walk(chosen)}


def _walk(chosen: Chosen) -> dict[str, Any] | None:
    """A picture of the longest walk, the first among equals; None without a graph."""
    graph = chosen.pool.graph
    if graph is None:
        return None
    longest = max(range(len(chosen.queries)), key=lambda i: (len(chosen.selections[i].steps), -i))
    query, selection = chosen.queries[longest], chosen.selections[longest]
    points, own = flatten(graph.vectors, query.vector)
    frontier = sorted({row for step in selection.steps for row in step.frontier} - set(selection.shots))
    heads = np.repeat(np.arange(len(graph.ids)), np.diff(graph.starts))
    near = {*selection.anchors, *frontier, *selection.shots}
    edges = [(a, b) for a, b in zip(heads.tolist(), graph.neighbours.tolist(), strict=True) if a < b and {a, b} <= near]
    picture = WalkPicture(points, graph.cohorts, edges, own, selection.anchors, frontier, selection.shots)
    name = f"The cohorts of {len(graph.ids)} patients and the walk for {query.patient.sample_id}"
    return {"sample_id": query.patient.sample_id, "svg": cohort_chart(name, picture)}
