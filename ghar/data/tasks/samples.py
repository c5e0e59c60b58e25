"""What samples show that is no list of visits: time series (GraphWalker), and texts that no chart holds."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np


class Text(Protocol):
    """A question, or a text with its summary."""

    @property
    def content(self) -> Hashable:
        """What two copies of it share; the answer is no part of it."""
        ...


T = TypeVar("T", bound=Text)


@dataclass(frozen=True, eq=False)
class TimeSeries:
    """A table of T steps by F features, the history of a `Sample`.

    features: F codes. hours: [T], end of each step in hours since the admission. values: float32 [T, F], the last value
    of the step, else the last one before it (LOCF); NaN before the first. source: int64 [T, F], the row of
    `Cohort.events` a value is from, -1 for none. observed: bool [T, F], whether it was measured in that step. static:
    numbers of the patient that hold for all steps, NaN where not known.
    """

    features: tuple[str, ...]
    hours: np.ndarray
    values: np.ndarray
    source: np.ndarray
    observed: np.ndarray
    static: tuple[float, ...] = ()


@dataclass(frozen=True)
class TextSample(Generic[T]):
    """A question or a text of a file as a sample. subject_id: of the patient that its id names, else its line."""

    sample_id: str
    subject_id: int
    text: T
    label: int

    def may_show(self, other: TextSample[T]) -> bool:
        """Whether the other may stand in a prompt about this one: it is another subject's, and no copy of it."""
        return other.subject_id != self.subject_id and other.text.content != self.text.content


def kin_of(texts: Sequence[tuple[int, Hashable]]) -> list[int]:
    """Give texts of one subject, and copies of one text, the same number, the lowest subject of all that hang together.

    texts: subject and content of each.
    """
    from scipy.sparse import coo_matrix, csgraph

    subjects, who = np.unique([subject for subject, _ in texts], return_inverse=True)
    number: dict[Hashable, int] = {}
    what = np.array([number.setdefault(content, len(number)) for _, content in texts]) + len(subjects)
    size = len(subjects) + len(number)
    graph = coo_matrix((np.ones(len(texts)), (who, what)), (size, size))  # of subjects and contents
    _, group = csgraph.connected_components(graph, directed=False)
    lowest = dict(zip(group[: len(subjects)][::-1].tolist(), subjects[::-1].tolist(), strict=True))  # the last one wins
    return [lowest[one] for one in group[who].tolist()]
