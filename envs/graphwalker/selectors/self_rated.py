"""The black-box variant of GraphWalker: the model says from 0 to 10 what a candidate would add (Appendix O.1).

For engines that give no log-probabilities. The question has the paper's inputs and its scale; the words are ours. A
reply that is no number from 0 to 10 counts as 0, which ends a walk where nothing else is left.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Sequence

from ghar.envs.generators import through
from ghar.envs.graphwalker.selectors.protocol import ExamplePool, Generate, SelectionQuery, Shots, Walk
from ghar.envs.graphwalker.selectors.search import Measure

SCALE = tuple(str(n) for n in range(11))


def rated(search: Measure, pool: ExamplePool, query: SelectionQuery) -> Walk:
    """Play a search in which the rating of the last example of a set is its gain over the set without it."""
    level: dict[Shots, float] = {(): 0.0}

    def asked(sets: Sequence[Shots]) -> Generator[Generate, Sequence[str], list[float]]:
        new = [shots for shots in sets if shots]
        replies = (yield Generate(tuple(question(pool, query, s) for s in new), 4, SCALE)) if new else []
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
        return f"{patient.text}\nOutcome: {pool.labels[patient.label]}"

    chosen = "\n\n".join(case(row) for row in shots[:-1]) or "none yet"
    return (
        "A clinician must answer a question about a patient and may read earlier cases first.\n"
        f"Question: {pool.question}\n\nThe patient:\n{query.patient.text}\n\nCases already chosen:\n{chosen}\n\n"
        f"Another case:\n{case(shots[-1])}\n\n"
        "How much would this other case add? Weigh whether it resembles or usefully contrasts with the patient, "
        "whether it says what the chosen cases do not, and how much surer one could be of the answer after it. "
        "0 means nothing (irrelevant, or a repetition), 5 some new information, 10 as much as a case can.\n"
        "Reply with one whole number from 0 to 10 and nothing else."
    )
