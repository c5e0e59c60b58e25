"""What every baseline reads of a sample: the codes that its visits show, as columns that training samples named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import numpy as np
from scipy.sparse import csr_array

from ghar.data.cohort import Sample, Visit
from ghar.data.tasks.splits import Labelled
from ghar.envs.baselines.notes import EarlierNotes
from ghar.envs.baselines.settings import Settings
from ghar.envs.baselines.stay_lengths import DAY, StayLengths

Scope = Literal["newest", "all"]  # visits that count
SCOPES: tuple[Scope, ...] = ("newest", "all")


class BaselineModel(Protocol):
    """A fitted baseline. about: what validation chose."""

    @property
    def about(self) -> Mapping[str, Any]: ...

    def __call__(self, samples: Sequence[Any]) -> np.ndarray:
        """f64[samples, classes]: label probabilities."""
        ...


class LabelledData(Protocol):
    """Training labels, i64[train], of so many classes."""

    @property
    def labels(self) -> np.ndarray: ...

    @property
    def classes(self) -> int: ...


class CodeEvidence(Protocol):
    """What a graph states about codes."""

    def of(self, code: str) -> Mapping[str, int]:
        """Look up path -> largest number that it leads to."""
        ...


@dataclass(frozen=True, eq=False)
class TrainingData:
    """All that a baseline may learn from: it is fitted to `train`, and `valid` chooses between fits.

    notes: the summaries of earlier stays, read when a baseline wants them; None where there are none. evidence: what a
    generated world's graph states about codes; None where there is none. lengths: of stays,
    read when a baseline wants them."""

    train: Sequence[Sample]
    valid: Sequence[Sample]
    classes: int
    seed: int
    settings: Settings = field(default_factory=Settings)
    notes: Callable[[], EarlierNotes | None] = lambda: None
    evidence: Callable[[], CodeEvidence | None] = lambda: None
    lengths: Callable[[], StayLengths] = StayLengths

    @property
    def labels(self) -> np.ndarray:
        """i64[train]"""
        return labels_of(self.train)

    def likelihood(self, model: BaselineModel) -> float:
        """Mean log probability of the validation labels."""
        return likelihood(model(self.valid), labels_of(self.valid))


def labels_of(samples: Sequence[Labelled]) -> np.ndarray:
    """i64[samples]"""
    return np.array([sample.label for sample in samples], dtype=np.int64)


def likelihood(shares: np.ndarray, labels: np.ndarray) -> float:
    """Mean log probability of the labels."""
    return float(np.log(shares[np.arange(len(labels)), labels].clip(1e-12)).mean())


def codes_of(visit: Visit) -> tuple[str, ...]:
    """All codes that a visit shows."""
    return (*visit.diagnoses, *visit.procedures, *visit.medications)


def vocabulary(samples: Iterable[Sample], most: int | None = None, least: int = 1) -> dict[str, int]:
    """Code -> column, by how many visits show it; those that as many show, by name. most: so many columns; least:
    visits that show a code which has one."""
    seen: Counter[str] = Counter()
    for sample in samples:
        for visit in sample.history:
            seen.update(codes_of(visit))
    ranked = sorted((code for code in seen if seen[code] >= least), key=lambda code: (-seen[code], code))
    return {code: i for i, code in enumerate(ranked[:most])}


def counts(samples: Sequence[Sample], place: Mapping[str, int], scope: Scope) -> csr_array:
    """f64[samples, codes]: how many visits in scope show a code. Codes without a column are left out."""
    rows: list[int] = []
    columns: list[int] = []
    for i, sample in enumerate(samples):
        for visit in sample.history if scope == "all" else sample.history[-1:]:
            indices = [place[code] for code in codes_of(visit) if code in place]
            columns += indices
            rows += [i] * len(indices)
    table = csr_array((np.ones(len(rows)), (rows, columns)), shape=(len(samples), len(place)))
    table.sum_duplicates()
    return table


def encode_presence(samples: Sequence[Sample], place: Mapping[str, int], scope: Scope) -> csr_array:
    """f64[samples, codes]: 1 where a visit in scope shows a code."""
    table = counts(samples, place, scope)
    table.data[:] = 1.0
    return table


def rhythm(samples: Sequence[Sample]) -> np.ndarray:
    """f64[samples, 2]: number of visits, and days from the start of the last but one to that of the newest, NaN where
    there is one. Nothing after the newest visit's start: its end may be what is asked for."""
    table = np.full((len(samples), 2), np.nan)
    for i, sample in enumerate(samples):
        table[i, 0] = len(sample.history)
        if len(sample.history) > 1:
            table[i, 1] = (sample.history[-1].start - sample.history[-2].start).total_seconds() / DAY
    return table
