"""What is kept of selections: more columns of episode rows, the report's part, the picture of one walk."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ghar.envs.case import Case
from ghar.envs.graphwalker.cohort_chart import WalkPicture, cohort_chart, flatten
from ghar.envs.graphwalker.corpus import Examples
from ghar.envs.graphwalker.pool import EncodedCases
from ghar.envs.graphwalker.react import Looks
from ghar.envs.graphwalker.rule import shares
from ghar.envs.graphwalker.selectors.graph import PatientGraph
from ghar.envs.system import Variant
from ghar.episode import Episode

Row = Mapping[str, Any]
COSTS = {  # of `Cost`, as reports name them
    "prompts": "scored prompts a patient",
    "tokens": "tokens a patient",
    "scratch": "tokens a patient, each prompt from scratch",
    "replies": "generated replies a patient",
}


@dataclass(frozen=True, eq=False)
class SelectionRows:
    """Columns and pictures of the selections among one material's cases. rule: the name of the majority rule. cut:
    records that had to be cut to fit the context."""

    material: EncodedCases[Any]
    rule: str
    cut: int = 0

    def row(self, episode: Episode, case: Case[Looks], variant: Variant) -> dict[str, Any]:
        """shots, scored, walk, cost of an episode; and what the examples say where the majority rule answered."""
        examples = next((r.result for r in episode.trace if isinstance(r.result, Examples)), Examples())
        labels, picked = self.material.task.labels, examples.selection
        columns: dict[str, Any] = {
            "retrieved": bool(examples.demonstrations),
            "iterations": max(1, len(episode.prediction.history)),
            "shots": [
                {"sample_id": shot.sample_id, "label": labels[shot.label], "gain": shot.gain}
                for shot in examples.demonstrations
            ],
            "scored": picked.scored,
            "cost": asdict(examples.cost),
            "walk": None,
        }
        if picked.anchors:
            frontier = {row for step in picked.steps for row in step.frontier} - set(picked.shots)
            path = {"anchors": picked.anchors, "frontier": sorted(frontier), "picks": picked.shots}
            columns["walk"] = {name: list(map(int, rows)) for name, rows in path.items()}
        if self.material.settings.entropy_drop:
            columns["entropy_drop"] = examples.entropy_drop if examples.demonstrations else 0.0
        if variant.who == self.rule and episode.failure is None:
            columns["label_probabilities"] = list(shares(examples, len(labels), self.material.usual))
        return columns

    def content(self, variant: str, selector: str, rows: Sequence[Row], clinical: Row) -> dict[str, Any]:
        """What the report shows of a variant's selections (schema: envs/graphwalker/report.py), from its rows."""
        keys = ("sample_id", "label", "prediction", "scored", "shots")
        cost = Counter[str]()
        for row in rows:
            cost.update({COSTS[name]: value / len(rows) for name, value in row["cost"].items()})
        about = {"variant": variant, "selector": selector, "k": self.material.settings.k}
        about["cost"] = {"patients": float(len(rows)), **cost, "records cut to fit": float(self.cut)}
        walk = self._walk([row for row in rows if row["walk"] is not None])
        return {**about, "clinical": clinical, "rows": [{key: row[key] for key in keys} for row in rows], "walk": walk}

    def _walk(self, rows: Sequence[Row]) -> dict[str, Any] | None:
        """A picture of the longest walk, the first among equals; None where no one walked."""
        if not rows:
            return None
        row = max(rows, key=lambda row: len(row["walk"]["picks"]))
        graph = self.material.graph
        [vector] = self.material.embeddings.of([row["sample_id"]])
        name = f"The cohorts of {len(graph.ids)} patients and the walk for {row['sample_id']}"
        return {"sample_id": row["sample_id"], "svg": cohort_chart(name, _picture(graph, vector, row["walk"]))}


def _picture(graph: PatientGraph, vector: np.ndarray, walk: Mapping[str, Sequence[int]]) -> WalkPicture:
    points, own = flatten(graph.vectors, vector)
    near = {*walk["anchors"], *walk["frontier"], *walk["picks"]}
    heads = np.repeat(np.arange(len(graph.ids)), np.diff(graph.starts))
    edges = [(a, b) for a, b in zip(heads.tolist(), graph.neighbours.tolist(), strict=True) if a < b and {a, b} <= near]
    return WalkPicture(points, graph.cohorts, edges, own, walk["anchors"], walk["frontier"], walk["picks"])
