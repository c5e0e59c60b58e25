"""Label words between tasks: a model trained for one task's answers is asked another's (GHAR, Section V-C).

A model that learned to answer with days of stay and is asked for yes or no may still answer with a number. Its reply
is then read in its own task's words, and stands for the answer of the same rank: source labels are laid along [0, 1]
by how common they are in training, so are the target's, and a source label becomes the target's label at its middle.
Labels of every task are in order of gravity. Replies in the target's own words are left as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ghar.llm.parsing import parse_label


@dataclass(frozen=True)
class Translation:
    """source: the labels that the model was trained to reply; target: for each of them, what it stands for here."""

    source: tuple[str, ...]
    target: tuple[str, ...]

    def __call__(self, reply: str) -> str | None:
        """The label that a reply in the source's words stands for; None for a reply that is in no words of either."""
        at = parse_label(reply, self.source).value
        return None if at is None else self.target[at]


def translation(
    source: Sequence[str], source_counts: Sequence[int], target: Sequence[str], target_counts: Sequence[int]
) -> Translation:
    """By rank. counts: of each label among training samples, in the order of the labels; 1 is added to each."""
    ends = np.cumsum(_shares(target_counts))
    shares = _shares(source_counts)
    middles = np.cumsum(shares) - shares / 2
    places = np.minimum(np.searchsorted(ends, middles, side="right"), len(target) - 1)
    return Translation(tuple(source), tuple(target[int(i)] for i in places))


def _shares(counts: Sequence[int]) -> np.ndarray:
    added = np.asarray(counts, dtype=float) + 1
    return added / added.sum()
