"""GraphWalker. Needs: log-probabilities (or generation alone: system.utility=self_rated). Cohorts near the patient,
anchors in them, then a search over the patient graph for examples that lower H(x | S) together.

Variants (system.variant): no_cohorts starts from the k_a patients nearest to this one; no_search measures every
patient of the retrieved cohorts alone; no_early_stop takes k examples whatever they gain; released expands along each
patient's own list of neighbours. What changes the graph (no_ehr_emb, louvain, released) or the prompt (show_encoder) is
done before. A cohort no one of which may be shown is passed over.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from typing import Any

import numpy as np

from ghar.envs.generators import through
from ghar.envs.graphwalker.selectors.protocol import (
    Ask,
    Entropy,
    ExamplePool,
    SelectionQuery,
    Shots,
    Walk,
    best,
    cosines,
    nothing_shared,
)
from ghar.envs.graphwalker.selectors.search import Measure, greedy, lazy, single
from ghar.envs.graphwalker.selectors.self_rated import rated

prepare = nothing_shared


def select(pool: ExamplePool, shared: None, query: SelectionQuery) -> Walk:
    if pool.selector.utility == "self_rated":
        return (yield from rated(walk(pool, query), pool, query))
    return (yield from measured(walk(pool, query), query))


def walk(pool: ExamplePool, query: SelectionQuery) -> Measure:
    """The search that the selector's variant means. Ratings do not diminish, so there every candidate is asked about at
    every step (Appendix O)."""
    selector, graph = pool.selector, pool.graph
    assert graph is not None
    early_stop = selector.variant != "no_early_stop"
    near = cosines(pool.vectors, query.vector)
    if selector.variant == "no_search":
        members = [row for cohort in cohorts(pool, query) for row in graph.members_of(cohort).tolist()]
        nearest = sorted((row for row in members if query.allowed[row]), key=lambda row: (-near[row], row))
        return single(nearest, selector.k, early_stop, pool.effort.each)

    def neighbours(row: int) -> Iterable[int]:
        around = graph.near[row] if selector.variant == "released" else graph.neighbours_of(row)
        return sorted((int(other) for other in around if query.allowed[other]), key=lambda row: (-near[row], row))

    search = greedy if selector.utility == "self_rated" else lazy
    return search(anchors(pool, query), neighbours, selector.k, early_stop, pool.effort.each)


def anchors(pool: ExamplePool, query: SelectionQuery) -> Sequence[int]:
    """The rows a walk starts from (Eqs. 5 to 7): k_a of each of k_c cohorts, by cosine."""
    selector, graph = pool.selector, pool.graph
    assert graph is not None
    near = cosines(pool.vectors, query.vector)
    if selector.variant == "no_cohorts":
        return best(near, query.allowed, selector.k_a)
    inside = [(graph.cohorts == cohort) & query.allowed for cohort in cohorts(pool, query)]
    return [row for members in inside for row in best(near, members, selector.k_a)]


def cohorts(pool: ExamplePool, query: SelectionQuery) -> Sequence[int]:
    """The k_c cohorts whose prototypes are nearest to the patient (Eq. 5), of those with anyone to show."""
    graph = pool.graph
    assert graph is not None
    has_any = np.bincount(graph.cohorts[query.allowed], minlength=len(graph.prototypes)) > 0
    return best(cosines(graph.prototypes, query.vector), has_any, pool.selector.k_c)


def measured(search: Measure, query: SelectionQuery) -> Walk:
    """Play a search with H(x | S) from the model."""

    def asked(sets: tuple[Shots, ...]) -> Generator[Ask, Any, Sequence[float]]:
        return (yield Entropy(query.patient, sets))

    return through(search, asked)
