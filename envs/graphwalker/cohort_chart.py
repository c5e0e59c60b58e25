"""The patient graph in two dimensions, its cohorts in colours, and one search path on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ghar.metrics.charts import INK, PALETTE, drawing

MOST = 3000  # patients drawn; more would be a blot


@dataclass(frozen=True, eq=False)
class WalkPicture:
    """points: float [n, 2]. cohorts: int [n]. edges: pairs of rows. query: its point [2]. anchors, frontier, picks:
    rows, the picks in their order."""

    points: np.ndarray
    cohorts: np.ndarray
    edges: Sequence[tuple[int, int]]
    query: np.ndarray
    anchors: Sequence[int]
    frontier: Sequence[int]
    picks: Sequence[int]


def flatten(vectors: np.ndarray, query: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[n, 2] and [2]: unit vectors along their two main directions, which keeps likeness by cosine as far as two
    numbers can."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    unit = np.divide(vectors, lengths, out=np.zeros(vectors.shape, np.float64), where=lengths > 0)
    centre = unit.mean(0)
    _, _, directions = np.linalg.svd(unit - centre, full_matrices=False)
    axes = np.zeros((2, vectors.shape[1]))
    axes[: min(2, len(directions))] = directions[:2]
    own = query / (np.linalg.norm(query) or 1.0)
    return (unit - centre) @ axes.T, (own - centre) @ axes.T


def cohort_chart(name: str, walk: WalkPicture) -> str:
    """SVG: patients as dots, the path's surroundings as lines, anchors ringed, picks numbered, the patient a star."""
    near = {*walk.anchors, *walk.frontier, *walk.picks}
    some = np.random.default_rng(0).permutation(len(walk.points))[:MOST]
    with drawing(name, height=4.2) as (_, axes, svg):
        colors = [PALETTE[cohort % len(PALETTE)] for cohort in walk.cohorts[some]]
        axes.scatter(*walk.points[some].T, s=9, c=colors, alpha=0.55, linewidths=0)
        for a, b in walk.edges:
            if a in near and b in near:
                axes.plot(*walk.points[[a, b]].T, color="#9aa5b1", linewidth=0.5, zorder=1)
        for rows, edge, size in ((walk.frontier, "#52606d", 22), (walk.anchors, "#b45309", 48)):
            axes.scatter(*walk.points[list(rows)].T, s=size, facecolors="none", edgecolors=edge, linewidths=1)
        path = np.vstack([walk.query, walk.points[list(walk.picks)]])
        axes.plot(*path.T, color=INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=3)
        for number, row in enumerate(walk.picks, start=1):
            axes.annotate(
                str(number), walk.points[row], xytext=(5, 5), textcoords="offset points", weight="bold", zorder=5
            )
        axes.scatter(*walk.points[list(walk.picks)].T, s=34, color=INK, zorder=4)
        axes.plot(*walk.query, marker="*", color="#9d174d", markersize=13, zorder=5)
        axes.set_axis_off()
    return svg[0]
