"""GraphWalker. Needs: log-probabilities (or generation alone: system.utility=self_rated). Cohorts near the patient,
anchors in them, then a search over the patient graph for examples that lower H(x | S) together.

Variants (system.variant): no_cohorts starts from the k_a patients nearest to this one; no_search measures every
patient of the retrieved cohorts alone; no_early_stop takes k examples whatever they gain; released expands along each
patient's own list of neighbours. What changes the graph (no_ehr_emb, louvain, released) or the prompt (show_encoder) is
done before. A cohort no one of which may be shown is passed over.

The black-box variant (Appendix O.1) is for engines that give no log-probabilities: the model says from 0 to 10 what a
candidate would add. The question has the paper's inputs and its scale; the words are ours. A reply that is no number
from 0 to 10 counts as 0, which ends a walk where nothing else is left. Where such a prompt is longer than the context
allows, the cases that were chosen last are left out of it, not the one it asks about.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ghar.envs.generators import through
from ghar.envs.graphwalker.selectors.protocol import (
    Ask,
    Entropy,
    ExamplePool,
    Generate,
    SelectionQuery,
    Shots,
    Walk,
    best,
    cosines,
    nothing_shared,
)
from ghar.envs.graphwalker.selectors.search import Measure, greedy, lazy, single

prepare = nothing_shared
SCALE = tuple(str(n) for n in range(11))  # of a rating
RATING_TOKENS = 4


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
    owner = pool.subjects.__getitem__
    if selector.variant == "no_search":
        members = [row for cohort in cohorts(pool, query) for row in graph.members_of(cohort).tolist()]
        nearest = sorted((row for row in members if query.allowed[row]), key=lambda row: (-near[row], row))
        return single(nearest, selector.k, early_stop, pool.effort.each, owner)

    def neighbours(row: int) -> Iterable[int]:
        around = graph.near[row] if selector.variant == "released" else graph.neighbours_of(row)
        return sorted((int(other) for other in around if query.allowed[other]), key=lambda row: (-near[row], row))

    search = greedy if selector.utility == "self_rated" else lazy
    return search(anchors(pool, query), neighbours, selector.k, early_stop, pool.effort.each, owner)


def anchors(pool: ExamplePool, query: SelectionQuery) -> Sequence[int]:
    """The rows a walk starts from (Eqs. 5 to 7): k_a of each of k_c cohorts, by cosine."""
    selector, graph = pool.selector, pool.graph
    assert graph is not None
    near = cosines(pool.vectors, query.vector)
    if selector.variant == "no_cohorts":
        return pool.best(near, query.allowed, selector.k_a)
    inside = [(graph.cohorts == cohort) & query.allowed for cohort in cohorts(pool, query)]
    return [row for members in inside for row in pool.best(near, members, selector.k_a)]


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


def rated(search: Measure, pool: ExamplePool, query: SelectionQuery) -> Walk:
    """Play a search in which the rating of the last example of a set is its gain over the set without it."""
    level: dict[Shots, float] = {(): 0.0}

    def about(row: int, chosen: Shots) -> str:
        return question(pool, query, (*chosen, row))

    def asked(sets: Sequence[Shots]) -> Generator[Generate, Sequence[str], list[float]]:
        new = [shots for shots in sets if shots]
        prompts = tuple(pool.longest(partial(about, s[-1]), s[:-1], RATING_TOKENS) for s in new)
        replies = (yield Generate(prompts, RATING_TOKENS, SCALE)) if new else []
        level.update({s: level[s[:-1]] - rating(reply) for s, reply in zip(new, replies, strict=True)})
        return [level[shots] for shots in sets]

    return through(search, asked)


def rating(reply: str) -> int:
    """The number that a reply is, or its first line; 0 where there is none or one outside the scale."""
    match = re.match(r"[\s*\"']{0,8}(10|[0-9])(?:\s?/\s?10)?[.!*\"']{0,4}[ \t]{0,8}(?:\n|$)", reply)
    return int(match[1]) if match else 0


def question(pool: ExamplePool, query: SelectionQuery, shots: Shots) -> str:
    """The prompt about the last of `shots`, the others being chosen already."""

    def case(row: int) -> str:
        patient = pool.patients[row]
        return f"{patient.text}\n{'Its summary' if pool.texts else 'Outcome'}: {patient.answer}"

    chosen = "\n\n".join(case(row) for row in shots[:-1]) or "none yet"
    if pool.texts:
        return (
            "A clinician must summarise a clinical text and may read other texts with their summaries first.\n"
            f"Task: {pool.question}\n\nThe text:\n{query.patient.text}\n\nTexts already chosen:\n{chosen}\n\n"
            f"Another text:\n{case(shots[-1])}\n\n"
            "How much would this other text add? Weigh whether it resembles or usefully contrasts with the text, "
            "whether it shows what the chosen ones do not, and how much better the summary could be after it. "
            "0 means nothing (irrelevant, or a repetition), 5 some new information, 10 as much as a text can.\n"
            "Reply with one whole number from 0 to 10 and nothing else."
        )
    return (
        "A clinician must answer a question about a patient and may read earlier cases first.\n"
        f"Question: {pool.question}\n\nThe patient:\n{query.patient.text}\n\nCases already chosen:\n{chosen}\n\n"
        f"Another case:\n{case(shots[-1])}\n\n"
        "How much would this other case add? Weigh whether it resembles or usefully contrasts with the patient, "
        "whether it says what the chosen cases do not, and how much surer one could be of the answer after it. "
        "0 means nothing (irrelevant, or a repetition), 5 some new information, 10 as much as a case can.\n"
        "Reply with one whole number from 0 to 10 and nothing else."
    )
